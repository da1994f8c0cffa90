update stream.ledger l set outcome = 'dead', attempts = d.attempts, reason = d.reason
from unnest(%(ids)s::uuid[], %(attempts)s::int[], %(reasons)s::text[]) d (id, attempts, reason)
where l.consumer_group = %(group)s and l.epoch = %(epoch)s and l.event_id = d.id
