-- Only what is still this worker's: a later owner may have written its row already.
update stream.assignment a set released_at = now()
from unnest(%(topics)s::text[], %(partitions)s::int[]) p (topic, partition)
where a.consumer_group = %(group)s and a.topic = p.topic and a.partition = p.partition and a.worker = %(worker)s
