-- Of events in ranges that are run again, each once: those this transaction may apply, and whether it is for the first
-- time in any epoch. Whoever claims an event has its row of epoch 0 as well, so that the same event at a position outside
-- the range is a duplicate. Otherwise as claim_again.sql.
with claimed as (
    insert into stream.ledger (consumer_group, event_id, epoch, attempts, worker)
    select %(group)s, id, epoch, attempts, %(worker)s
    from unnest(%(ids)s::uuid[], %(epochs)s::int[], %(attempts)s::int[]) c (id, epoch, attempts),
         set_config('stream.handling', 'on', true)
    order by id, epoch
    on conflict do nothing
    returning event_id, epoch, attempts
), first as (
    insert into stream.ledger (consumer_group, event_id, epoch, attempts, worker)
    select %(group)s, event_id, 0, attempts, %(worker)s from claimed order by event_id
    on conflict do nothing
    returning event_id
)
select c.event_id, c.epoch, f.event_id is not null
from claimed c left join first f using (event_id)
