-- Each is looked up in the index of lanes, whose order no other has.
select n from unnest(%(lanes)s::int[]) n cross join lateral (
    select from stream.parked p
    where p.consumer_group = %(group)s and p.lane = n order by p.partition, p."offset" limit 1) p
