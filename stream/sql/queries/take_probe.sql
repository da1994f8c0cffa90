-- One process may try one event; the next may once the interval is over again.
update stream.group_state
set probe_at = clock_timestamp() + probe_interval
where consumer_group = %(group)s and (halted_at is not null or breaker_open_since is not null)
  and probe_at <= clock_timestamp()
returning true
