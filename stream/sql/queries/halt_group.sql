update stream.group_state
set halted_at = clock_timestamp(), halted_reason = %(reason)s,
    probe_at = clock_timestamp() + %(probe_s)s * interval '1 second', probe_interval = %(probe_s)s * interval '1 second'
where consumer_group = %(group)s and halted_at is null
