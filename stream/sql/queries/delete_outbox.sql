-- Exactly the acknowledged rows.
delete from stream.outbox o
using unnest(%(topics)s::text[], %(shards)s::smallint[], %(ids)s::bigint[]) d(topic, shard, id)
where o.topic = d.topic and o.shard = d.shard and o.id = d.id
