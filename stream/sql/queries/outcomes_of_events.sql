select event_id, consumer_group, outcome, at, attempts, epoch, worker, reason
from stream.ledger
where consumer_group = any (%(groups)s) and event_id = any (%(ids)s)
order by at, consumer_group
