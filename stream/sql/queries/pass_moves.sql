-- What runs again is passed where the broker has an offset behind it; where all of it was before now, its rate ends.
with passed as (
    update stream.rewind_move m set passed = true
    from unnest(%(topics)s::text[], %(partitions)s::int[], %(offsets)s::bigint[]) c (topic, partition, committed)
    where m.rewind = %(rewind)s and m.topic = c.topic and m.partition = c.partition and not m.passed
      and c.committed >= m.upto
)
update stream.rewind r set passed_at = clock_timestamp()
where r.id = %(rewind)s and r.passed_at is null and not exists (
    select from stream.rewind_move m where m.rewind = r.id and m.new_offset < m.upto and not m.passed)
