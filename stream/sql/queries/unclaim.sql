delete from stream.ledger l
using unnest(%(ids)s::uuid[], %(epochs)s::int[]) c (id, epoch)
where l.consumer_group = %(group)s and l.event_id = c.id and l.epoch = c.epoch
