-- The dead letters of these events, whatever became of them.
select d.event_id, d.consumer_group, d.epoch, d.id, d.kind, d.error_class, d.error_message, d.errors, d.attempts,
       d.last_failed_at, d.worker, d.status, d.resolved_at, d.resolved_by, d.resolved_reason
from stream.dead_letter d
where d.consumer_group = any (%(groups)s) and d.event_id = any (%(ids)s)
