-- Lanes that are parked: all of the group's where they are few, else those that are asked for. Up to `few` steps along
-- the index of lanes, each to the first row behind the last one's lane, are cheaper than one for each lane of a large
-- run.
with recursive step (n, lane) as (
    (select 1, lane from stream.parked where consumer_group = %(group)s order by lane limit 1)
    union all
    select step.n + 1, next.lane
    from step cross join lateral (
        select p.lane from stream.parked p
        where p.consumer_group = %(group)s and p.lane > step.lane order by p.lane limit 1) next
    where step.n <= %(few)s
), met as materialized (select lane from step)
select lane from met where (select count(*) from met) <= %(few)s
union all
select n from unnest(%(lanes)s::int[]) n cross join lateral (
    select from stream.parked p
    where p.consumer_group = %(group)s and p.lane = n order by p.partition, p."offset" limit 1) p
where (select count(*) from met) > %(few)s
