-- The event this transaction may apply: one row where it may, saying whether anything of the group is parked, as seen
-- after the row was there. As claim.sql and any_parked.sql, and half their price.
insert into stream.ledger (consumer_group, event_id, epoch, attempts, worker)
select %(group)s, %(id)s::uuid, %(epoch)s, 1, %(worker)s from set_config('stream.handling', 'on', true)
on conflict do nothing
returning stream.anything_parked(consumer_group)
