-- The group's rewind that its command did not bring to an end, now closed.
update stream.rewind r set ended_at = clock_timestamp(), result = 'cut off'
where r.consumer_group = %(group)s and r.ended_at is null and not stream.is_rewinding(r.id)
returning r.id, r.who, r.asked_at, r.undo
