-- Letters of events that a range run again has settled: their event has been tried since, for better or worse.
update stream.dead_letter d
set status = 'superseded', resolved_at = clock_timestamp(), resolved_by = %(worker)s,
    resolved_reason = 'run again in epoch ' || s.epoch
from unnest(%(ids)s::uuid[], %(epochs)s::int[]) s (id, epoch)
where d.consumer_group = %(group)s and d.event_id = s.id and d.epoch < s.epoch and d.status = 'open'
