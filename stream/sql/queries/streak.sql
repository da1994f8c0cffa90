-- How many keys have died in a row. A statement of its own: it must see what the last holder of the lock committed.
select count(distinct stream.parked_lane(d.consumer_group, d.topic, d.key, d.partition))
from stream.dead_letter d
join stream.group_state s on s.consumer_group = d.consumer_group
where d.consumer_group = %(group)s and d.id > s.streak_after and d.deploy_fault
