-- A group that never ran may be paused too: it begins once it goes on.
insert into stream.group_state (consumer_group, start_policy, paused_at, paused_until, paused_reason)
values (%(group)s, 'not begun', clock_timestamp(), coalesce(%(until)s::timestamptz, 'infinity'), %(reason)s)
on conflict (consumer_group) do update
set paused_at = excluded.paused_at, paused_until = excluded.paused_until, paused_reason = excluded.paused_reason
