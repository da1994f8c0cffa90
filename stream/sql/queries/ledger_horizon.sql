-- From now on the group's ledger is said to remember nothing older. A group that never ran may have rows too.
insert into stream.group_state as s (consumer_group, start_policy, ledger_pruned_before)
values (%(group)s, 'not begun', %(before)s)
on conflict (consumer_group) do update
set ledger_pruned_before = greatest(s.ledger_pruned_before, excluded.ledger_pruned_before)
