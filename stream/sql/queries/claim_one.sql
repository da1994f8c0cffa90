-- The event this transaction may apply. No row: it was applied before. One row: it may; two: it may, but its lane is
-- parked, as seen after the claim was there (the arms run in their order). Rows without columns, because only their
-- number is asked for: one column more makes this statement a quarter dearer to the client. Otherwise as claim.sql and
-- parked_lanes.sql.
with claimed as (
    insert into stream.ledger (consumer_group, event_id, epoch, attempts, worker)
    select %(group)s, %(id)s::uuid, %(epoch)s, %(attempt)s, %(worker)s from set_config('stream.handling', 'on', true)
    on conflict do nothing
    returning consumer_group
)
select from claimed
union all
select from claimed where stream.is_parked(consumer_group, %(lane)s)
