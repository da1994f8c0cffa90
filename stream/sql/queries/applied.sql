-- Those of the events that the ledger knows in the epoch asked for. Each is looked up by its key (`offset 0`): as a join,
-- a group too new for the table's statistics was read as a whole.
select l.event_id, l.epoch
from unnest(%(ids)s::uuid[], %(epochs)s::int[]) a (id, epoch) cross join lateral (
    select event_id, epoch from stream.ledger
    where consumer_group = %(group)s and event_id = a.id and epoch = a.epoch offset 0) l
