-- Topics with rows beside the known ones: one probe of the index between each known topic and the next, so that
-- the dead rows of the known ones are not walked over.
select found.topic
from (select topic, lead(topic) over (order by topic) as next
      from (select '' as topic union all select unnest(%(known)s::text[])) known) gap
cross join lateral (
    select o.topic from stream.outbox o
    where o.topic > gap.topic and (gap.next is null or o.topic < gap.next)
    order by o.topic limit 1) found
