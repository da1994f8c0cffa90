insert into stream.grown_partition (consumer_group, topic, partition)
select %(group)s, topic, partition from unnest(%(topics)s::text[], %(partitions)s::int[]) p (topic, partition)
order by topic, partition
on conflict do nothing
