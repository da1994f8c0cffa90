-- The outbox in numbers, in one snapshot; ages in seconds.
select o.pending, o.oldest_seconds,
       (select count(*) from stream.scheduled) as scheduled,
       (select count(*) from stream.outbox_rejected) as rejected
from (select count(*) as pending,
             round(extract(epoch from clock_timestamp() - min(created_at)), 3)::float8 as oldest_seconds
      from stream.outbox) o
