update stream.group_state
set breaker_open_since = clock_timestamp(), breaker_reason = %(reason)s,
    probe_at = case when halted_at is null then clock_timestamp() + %(probe_s)s * interval '1 second' else probe_at end,
    probe_interval = case when halted_at is null then %(probe_s)s * interval '1 second' else probe_interval end
where consumer_group = %(group)s and breaker_open_since is null
