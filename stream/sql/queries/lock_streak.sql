-- Deaths of the kind that a bad deploy makes are counted one after the other, over all processes of the group.
-- `broken`: something succeeded since the last of them, the streak begins anew.
update stream.group_state
set streak_after = case when %(broken)s then coalesce((select max(id) from stream.dead_letter where consumer_group = %(group)s), 0)
                        else streak_after end
where consumer_group = %(group)s
