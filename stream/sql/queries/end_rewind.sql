-- From now on the group's members go on; what an earlier rewind ran again is not waited for any more.
with earlier as (
    update stream.rewind e set passed_at = clock_timestamp()
    from stream.rewind r
    where r.id = %(rewind)s and e.consumer_group = r.consumer_group and e.id < r.id and %(result)s = 'moved'
      and e.rate is not null and e.passed_at is null
)
update stream.rewind set ended_at = clock_timestamp(), result = %(result)s
where id = %(rewind)s and ended_at is null
