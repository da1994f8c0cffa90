-- Rows that are to be taken away: from now on `nudge.sql` changes them no more. A statement of its own, for the next one
-- is to see what it has waited for. Each is looked up by its key: see applied.sql.
select 1
from unnest(%(topics)s::text[], %(partitions)s::int[], %(offsets)s::bigint[], %(ids)s::uuid[])
     r (topic, partition, "offset", event_id) cross join lateral (
    select from stream.parked
    where consumer_group = %(group)s and topic = r.topic and partition = r.partition and "offset" = r."offset"
      and event_id = r.event_id and epoch = %(epoch)s offset 0 for update) p
