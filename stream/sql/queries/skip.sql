-- Each is looked up by its key: see applied.sql.
update stream.ledger l set outcome = 'skipped', reason = s.reason
from (
    select f.ctid as place, c.reason
    from unnest(%(ids)s::uuid[], %(epochs)s::int[], %(reasons)s::text[]) c (id, epoch, reason) cross join lateral (
        select ctid from stream.ledger
        where consumer_group = %(group)s and event_id = c.id and epoch = c.epoch offset 0) f
) s
where l.ctid = s.place
