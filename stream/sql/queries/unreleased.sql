-- Which of these partitions were not released by who had them last: it died with them.
select a.topic, a.partition
from stream.assignment a
join unnest(%(topics)s::text[], %(partitions)s::int[]) p (topic, partition) using (topic, partition)
where a.consumer_group = %(group)s and a.released_at is null
