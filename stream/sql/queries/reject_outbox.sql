-- Rows that cannot be published, and those behind them, set aside where `stream outbox rejected` shows them.
with moved as (
    delete from stream.outbox o
    using unnest(%(topics)s::text[], %(shards)s::smallint[], %(ids)s::bigint[], %(reasons)s::text[], %(errors)s::text[])
        d(topic, shard, id, reason, error)
    where o.topic = d.topic and o.shard = d.shard and o.id = d.id
    returning o.*, d.reason, d.error
)
insert into stream.outbox_rejected (id, shard, topic, key, event_id, type, "time", payload, data,
                                    header_names, header_values, created_at, reason, error)
select id, shard, topic, key, event_id, type, "time", payload, data, header_names, header_values, created_at, reason, error
from moved
