-- Rows that could not be published and those behind them, in their keys' order; the age is since the rejection.
select r.id, r.topic, r.key, r.type, r.event_id, r.reason, r.error, r.rejected_at,
       round(extract(epoch from clock_timestamp() - r.rejected_at), 3)::float8 as age_seconds
from stream.outbox_rejected r
where (%(topic)s::text is null or r.topic = %(topic)s)
  and (%(keys)s::bytea[] is null or r.key = any (%(keys)s))
  and (%(ids)s::bigint[] is null or r.id = any (%(ids)s))
order by r.id
