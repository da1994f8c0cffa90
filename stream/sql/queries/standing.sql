-- What holds for all processes of the group, whether there is a streak of deaths that a success would end, which rewind
-- they make way for, and whose rate holds.
select s.halted_at is not null, s.halted_reason, s.paused_until > clock_timestamp(), s.paused_reason,
       s.breaker_open_since is not null, s.breaker_reason,
       exists (select from stream.dead_letter d
               where d.consumer_group = s.consumer_group and d.id > s.streak_after and d.deploy_fault),
       stream.recess(s.consumer_group), p.id, p.rate
from stream.group_state s
left join lateral (select r.id, r.rate from stream.rewind r
                   where r.consumer_group = s.consumer_group and r.rate is not null and r.passed_at is null
                     and (r.ended_at is not null or not stream.is_rewinding(r.id))
                   order by r.id desc limit 1) p on true
where s.consumer_group = %(group)s
