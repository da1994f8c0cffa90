-- The letter's event parked again as if it had never been tried, in its old place; its errors stay to be read.
-- first_failed_at is empty: the time that an event may go on failing begins anew. Returns whether it is now the
-- lowest of its lane: then the caller leaves a live head; else whatever is lower has a record on its way already.
insert into stream.parked as p (
    consumer_group, topic, partition, "offset", event_id, epoch, type, key, value, header_names, header_values,
    timestamp, lane, last_failed_at, error_kind, error_stage, error_class, error_message, errors, fingerprint, worker,
    replays)
select d.consumer_group, d.topic, d.partition, d."offset", d.event_id, 0, d.type, d.key, d.value,
       d.header_names, d.header_values, d.timestamp,
       stream.parked_lane(d.consumer_group, d.topic, d.key, d.partition), d.last_failed_at, d.kind, d.stage,
       d.error_class, d.error_message, d.errors, d.fingerprint, d.worker, d.replays + 1
from stream.dead_letter d where d.id = %(letter)s
on conflict (consumer_group, topic, partition, "offset", event_id, epoch) do update
set attempts = 0, due_at = null, held = false, first_failed_at = null, replays = excluded.replays
returning not exists (
    select from stream.parked q
    where q.consumer_group = p.consumer_group and q.lane = p.lane
      and (q.partition, q."offset", q.event_id, q.epoch) < (p.partition, p."offset", p.event_id, p.epoch))
