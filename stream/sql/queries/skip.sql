update stream.ledger l set outcome = 'skipped', reason = s.reason
from unnest(%(ids)s::uuid[], %(epochs)s::int[], %(reasons)s::text[]) s (id, epoch, reason)
where l.consumer_group = %(group)s and l.event_id = s.id and l.epoch = s.epoch
