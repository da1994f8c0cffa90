-- Each is looked up by its key: see applied.sql.
update stream.ledger l set outcome = 'dead', attempts = d.attempts, reason = d.reason
from (
    select f.ctid as place, c.attempts, c.reason
    from unnest(%(ids)s::uuid[], %(epochs)s::int[], %(attempts)s::int[], %(reasons)s::text[])
         c (id, epoch, attempts, reason) cross join lateral (
        select ctid from stream.ledger
        where consumer_group = %(group)s and event_id = c.id and epoch = c.epoch offset 0) f
) d
where l.ctid = d.place
