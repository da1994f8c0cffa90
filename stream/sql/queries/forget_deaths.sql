-- Events given up in an earlier epoch have not been applied: a later one is their first. Not where the later one has
-- its own row, whatever it says.
delete from stream.ledger l
using unnest(%(ids)s::uuid[], %(epochs)s::int[]) c (id, epoch)
where l.consumer_group = %(group)s and l.event_id = c.id and l.epoch < c.epoch and l.outcome = 'dead'
  and not exists (select from stream.ledger e
                  where e.consumer_group = %(group)s and e.event_id = c.id and e.epoch = c.epoch)
