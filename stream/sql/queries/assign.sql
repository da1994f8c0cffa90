insert into stream.assignment (consumer_group, topic, partition, worker)
select %(group)s, topic, partition, %(worker)s
from unnest(%(topics)s::text[], %(partitions)s::int[]) p (topic, partition)
order by topic, partition
on conflict (consumer_group, topic, partition) do update
set worker = excluded.worker, assigned_at = now(), released_at = null
