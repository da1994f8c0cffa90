-- Those of the events that the ledger knows in the epoch asked for.
select l.event_id, l.epoch
from unnest(%(ids)s::uuid[], %(epochs)s::int[]) a (id, epoch)
join stream.ledger l on l.consumer_group = %(group)s and l.event_id = a.id and l.epoch = a.epoch
