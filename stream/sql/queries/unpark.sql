-- Rows that are out of the way: applied, or given up and released.
delete from stream.parked p
using unnest(%(topics)s::text[], %(partitions)s::int[], %(offsets)s::bigint[], %(ids)s::uuid[])
      r(topic, partition, "offset", event_id)
where p.consumer_group = %(group)s and p.topic = r.topic and p.partition = r.partition and p."offset" = r."offset"
  and p.event_id = r.event_id and p.epoch = %(epoch)s
