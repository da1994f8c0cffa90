-- The events this transaction may apply. A row another transaction has not committed yet is waited for.
-- The setting is gone with the transaction: see stream.same_transaction().
insert into stream.ledger (consumer_group, event_id, epoch, attempts, worker)
select %(group)s, id, %(epoch)s, 1, %(worker)s
from unnest(%(ids)s::uuid[]) id, set_config('stream.handling', 'on', true)
on conflict do nothing
returning event_id
