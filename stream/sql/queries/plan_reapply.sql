with next as (
    insert into stream.group_state as s (consumer_group, start_policy, last_epoch)
    values (%(group)s, 'beginning', 1)
    on conflict (consumer_group) do update set last_epoch = s.last_epoch + 1
    returning s.last_epoch as epoch
), written as (
    insert into stream.reapply
        (consumer_group, epoch, topic, partition, from_offset, to_offset, old_offset, who, reason)
    select %(group)s, next.epoch, r.topic, r.partition, r.low, r.high, r.old, %(who)s, %(reason)s
    from next, unnest(%(topics)s::text[], %(partitions)s::int[], %(lows)s::bigint[], %(highs)s::bigint[],
                      %(olds)s::bigint[]) r (topic, partition, low, high, old)
)
select epoch from next
