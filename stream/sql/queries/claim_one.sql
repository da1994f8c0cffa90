-- The event this transaction may apply: one row where it may. As claim.sql, and half its price.
insert into stream.ledger (consumer_group, event_id, epoch, attempts, worker)
select %(group)s, %(id)s::uuid, %(epoch)s, %(attempt)s, %(worker)s from set_config('stream.handling', 'on', true)
on conflict do nothing
