-- The event this transaction may apply. No row: it was applied before. One row: it may; two: it may, and something of
-- the group is parked, as seen after the claim was there (the arms run in their order). Rows without columns, because
-- only their number is asked for: one column more makes this statement a quarter dearer to the client. Otherwise as
-- claim.sql and any_parked.sql.
with claimed as (
    insert into stream.ledger (consumer_group, event_id, epoch, attempts, worker)
    select %(group)s, %(id)s::uuid, %(epoch)s, 1, %(worker)s from set_config('stream.handling', 'on', true)
    on conflict do nothing
    returning consumer_group
)
select from claimed
union all
select from claimed where stream.anything_parked(consumer_group)
