-- Rewinds that may have moved offsets, and nobody has looked yet. Who looks first, settles; others wait for it.
select r.id, r.epoch, m.topic, m.partition, m.old_offset, m.new_offset
from stream.rewind r join stream.rewind_move m on m.rewind = r.id
where r.consumer_group = %s and r.settled_at is null
order by r.id, m.topic, m.partition
for update of r
