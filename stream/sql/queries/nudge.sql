-- Live heads overdue for long: their record may be lost. Each again after 1, 2, 4 ... 60 minutes, by one process only;
-- one that others have in hand is left for the next time. A record of it that was refused (its topic takes less than it
-- did) would hold back the new one, and carries nothing: it goes.
with overdue as (
    select p.ctid from stream.parked p
    where p.consumer_group = %(group)s and p.nudge_at <= clock_timestamp() and not p.held
    order by p.nudge_at limit 100 for update skip locked
), nudged as (
    update stream.parked p
    set nudges = p.nudges + 1,
        nudge_at = clock_timestamp() + least(power(2, least(p.nudges + 1, 30)) * %(first_s)s, %(most_s)s) * interval '1 second'
    from overdue o where p.ctid = o.ctid
    returning p
), refused as (
    delete from stream.outbox_rejected r using nudged n
    where r.topic = %(group)s || '.retry' and r.key = (n.p).key
)
select count(*), stream.wake(array_agg(nudged.p), coalesce(
    (select most_record_bytes from stream.group_state where consumer_group = %(group)s), 1048588))
from nudged
