-- What holds for all processes of the group, and whether there is a streak of deaths that a success would end.
select s.halted_at is not null, s.halted_reason, s.paused_until > clock_timestamp(), s.paused_reason,
       s.breaker_open_since is not null, s.breaker_reason,
       exists (select from stream.dead_letter d
               where d.consumer_group = s.consumer_group and d.id > s.streak_after and d.deploy_fault)
from stream.group_state s
where s.consumer_group = %(group)s
