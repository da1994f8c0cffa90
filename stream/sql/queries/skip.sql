update stream.ledger l set outcome = 'skipped', reason = s.reason
from unnest(%(ids)s::uuid[], %(reasons)s::text[]) s (id, reason)
where l.consumer_group = %(group)s and l.epoch = %(epoch)s and l.event_id = s.id
