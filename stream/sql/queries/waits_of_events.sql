-- Since when these events of a key wait, or waited, in stream.parked, and their tries that failed there.
select w.event_id, w.consumer_group, w.epoch, w.parked_at, w.errors
from stream.waited w
where w.consumer_group = any (%(groups)s) and w.event_id = any (%(ids)s)
union all
select p.event_id, p.consumer_group, stream.epoch_of(p.consumer_group, p.topic, p.partition, p."offset"), p.parked_at, p.errors
from stream.parked p
where p.consumer_group = any (%(groups)s) and p.topic = any (%(topics)s) and sha256(p.key) = sha256(%(key)s::bytea)
  and p.event_id = any (%(ids)s)
