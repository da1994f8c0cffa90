-- What handlers of this process are at, each for so many seconds.
update stream.worker
set handling = coalesce((
    select jsonb_agg(jsonb_build_object(
               'topic', h.topic, 'partition', h.partition, 'offset', h."offset", 'key', h.key, 'event_id', h.id,
               'since', clock_timestamp() - h.age_s * interval '1 second') order by h.age_s desc)
    from unnest(%(topics)s::text[], %(partitions)s::int[], %(offsets)s::bigint[], %(keys)s::text[], %(ids)s::uuid[],
                %(ages)s::float8[]) h (topic, partition, "offset", key, id, age_s)
), '[]')
where consumer_group = %(group)s and worker = %(worker)s
