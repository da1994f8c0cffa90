-- Each is looked up by its key: see applied.sql.
delete from stream.parked
where ctid = any (array(
    select p.ctid
    from unnest(%(topics)s::text[], %(partitions)s::int[], %(offsets)s::bigint[], %(ids)s::uuid[])
         r (topic, partition, "offset", event_id) cross join lateral (
        select ctid from stream.parked
        where consumer_group = %(group)s and topic = r.topic and partition = r.partition and "offset" = r."offset"
          and event_id = r.event_id and epoch = %(epoch)s offset 0) p))
