-- Events that wait for another try, behind a failed one of their key, or for an operator; as outcomes_of_events.sql.
select p.event_id, p.consumer_group, null, null, nullif(p.attempts, 0), p.epoch, p.worker,
       case when p.held then 'held for an operator: ' || p.error_class || ': ' || p.error_message
            when p.error_class is null then 'behind an earlier event of its key that failed'
            else 'failed, again ' || case when p.due_at <= now() then 'now'
                                          else 'in ' || ceil(extract(epoch from p.due_at - now())) || ' s' end
                 || ': ' || p.error_class || ': ' || p.error_message end
from stream.parked p
where p.consumer_group = any (%(groups)s) and p.event_id = any (%(ids)s)
order by p.consumer_group, p.epoch
