-- Of events that were claimed in these epochs: those that were done in another. After the claim, in a statement of its
-- own: what the claim has waited for is not seen by the claim itself.
select c.id, c.epoch
from unnest(%(ids)s::uuid[], %(epochs)s::int[]) c (id, epoch) cross join lateral (
    select from stream.ledger l
    where l.consumer_group = %(group)s and l.event_id = c.id and l.epoch <> c.epoch and l.outcome = 'done' limit 1) d
