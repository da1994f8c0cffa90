-- The letter's event is given up for good in the range that is run again now, if there is one: as if skipped in it.
with place as (
    select d.*, stream.epoch_of(d.consumer_group, d.topic, d.partition, d."offset") as now_in
    from stream.dead_letter d where d.id = %(letter)s
), aside as (
    delete from stream.reapply_parked a using place d
    where a.consumer_group = d.consumer_group and a.topic = d.topic and a.partition = d.partition
      and a."offset" = d."offset" and a.event_id = d.event_id
)
insert into stream.ledger (consumer_group, event_id, epoch, outcome, attempts, worker, reason)
select d.consumer_group, d.event_id, d.now_in, 'skipped', d.attempts, %(who)s, 'discarded: ' || %(reason)s::text
from place d where d.now_in > d.epoch
on conflict do nothing
