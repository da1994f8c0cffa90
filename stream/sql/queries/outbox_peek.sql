-- The oldest rows that wait for their topic.
select o.id, o.topic, o.key, o.type, o.event_id, o."time",
       round(extract(epoch from clock_timestamp() - o.created_at), 3)::float8 as age_seconds, o.payload, o.data
from stream.outbox o
where (%(topic)s::text is null or o.topic = %(topic)s)
  and (%(key)s::bytea is null
       or o.key = %(key)s and o.shard = (get_byte(sha256(%(key)s::bytea), 0) %% 64)::smallint)
order by o.id
limit %(limit)s
