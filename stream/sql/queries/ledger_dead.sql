update stream.ledger l set outcome = 'dead', attempts = d.attempts, reason = d.reason
from unnest(%(ids)s::uuid[], %(epochs)s::int[], %(attempts)s::int[], %(reasons)s::text[]) d (id, epoch, attempts, reason)
where l.consumer_group = %(group)s and l.event_id = d.id and l.epoch = d.epoch
