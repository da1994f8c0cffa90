-- The breaker's probes move apart; those of a halted group keep their distance.
update stream.group_state
set probe_interval = least(probe_interval * 2, greatest(probe_interval, %(most_s)s * interval '1 second')),
    probe_at = clock_timestamp()
               + least(probe_interval * 2, greatest(probe_interval, %(most_s)s * interval '1 second'))
where consumer_group = %(group)s and halted_at is null and breaker_open_since is not null
