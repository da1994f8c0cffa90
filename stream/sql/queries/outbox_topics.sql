-- Topics with rows beside the known ones: one probe of the index between each known topic and the next, so that
-- the dead rows of the known ones are not walked over.
with known as (
    select topic, lead(topic) over (order by topic) as next
    from (select '' as topic union all select unnest(%(known)s::text[])) k
)
select between_two.topic
from known cross join lateral (
    select o.topic from stream.outbox o where o.topic > known.topic and o.topic < known.next
    order by o.topic limit 1) between_two
union all
select behind.topic
from known cross join lateral (
    select o.topic from stream.outbox o where o.topic > known.topic order by o.topic limit 1) behind
where known.next is null
