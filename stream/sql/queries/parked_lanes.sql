-- Each is looked up in the index of lanes, and in no other: see any_parked.sql.
select n from unnest(%(lanes)s::int[]) n cross join lateral (
    select consumer_group, lane from stream.parked p
    where (p.consumer_group, p.lane) >= (%(group)s, n) order by p.consumer_group, p.lane limit 1) first
where first.consumer_group = %(group)s and first.lane = n
