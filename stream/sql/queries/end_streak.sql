update stream.group_state
set streak_after = coalesce((select max(id) from stream.dead_letter where consumer_group = %(group)s), 0)
where consumer_group = %(group)s and halted_at is null
