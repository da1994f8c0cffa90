-- A success: whatever held the group is lifted, and no death before it counts for a streak.
update stream.group_state
set halted_at = null, halted_reason = null, breaker_open_since = null, breaker_reason = null, probe_at = null,
    streak_after = coalesce((select max(id) from stream.dead_letter where consumer_group = %(group)s), 0)
where consumer_group = %(group)s
