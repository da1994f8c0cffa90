-- Each is looked up by its key: see applied.sql.
delete from stream.ledger
where ctid = any (array(
    select l.ctid
    from unnest(%(ids)s::uuid[], %(epochs)s::int[]) c (id, epoch) cross join lateral (
        select ctid from stream.ledger
        where consumer_group = %(group)s and event_id = c.id and epoch = c.epoch offset 0) l))
