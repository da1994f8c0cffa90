-- What holds these groups.
select s.consumer_group as "group", s.halted_at is not null as halted, s.halted_at, s.halted_reason,
       coalesce(s.paused_until > clock_timestamp(), false) as paused, s.paused_at, s.paused_reason,
       nullif(s.paused_until, 'infinity') as paused_until,
       s.breaker_open_since is not null as broken, s.breaker_open_since, s.breaker_reason
from stream.group_state s
where s.consumer_group = any (%(groups)s::text[])
order by s.consumer_group collate "C"
