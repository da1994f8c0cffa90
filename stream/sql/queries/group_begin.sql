-- What is there already wins: the group's beginning is decided once. A row without topics is a pause's (pause_group.sql).
insert into stream.group_state as s (consumer_group, start_policy, start_offsets, history_ends, topic_ids)
values (%(group)s, %(policy)s, %(offsets)s, %(ends)s, %(ids)s)
on conflict (consumer_group) do update
set start_policy = case when s.topic_ids = '{}' then excluded.start_policy else s.start_policy end,
    start_offsets = excluded.start_offsets || s.start_offsets,
    history_ends = excluded.history_ends || s.history_ends,
    topic_ids = excluded.topic_ids || s.topic_ids
