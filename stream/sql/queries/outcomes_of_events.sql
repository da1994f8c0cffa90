-- What groups made of events; of a dead one its letter, and whether its key is held by it.
select l.event_id, l.consumer_group, l.outcome, l.at, l.attempts, l.epoch, l.worker, l.reason,
       case when l.outcome = 'dead' then (
           select max(d.id) from stream.dead_letter d
           where d.event_id = l.event_id and d.consumer_group = l.consumer_group and d.epoch = l.epoch) end,
       l.outcome = 'dead' and exists (
           select from stream.parked p
           where p.consumer_group = l.consumer_group and p.event_id = l.event_id and p.held)
from stream.ledger l
where l.consumer_group = any (%(groups)s) and l.event_id = any (%(ids)s)
order by l.at, l.consumer_group
