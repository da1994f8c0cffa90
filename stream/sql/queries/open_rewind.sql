-- The group's rewind that has no end yet, and whether its command is there.
select r.id, r.who, r.asked_at, r.undo, stream.is_rewinding(r.id)
from stream.rewind r
where r.consumer_group = %(group)s and r.ended_at is null
