-- Lanes that are parked: all of the group's where they are few, else those that are asked for. Up to `few` steps along
-- the index, each to the first row behind the last one's lane (see any_parked.sql), are cheaper than one for each lane
-- of a large run.
with recursive step (n, consumer_group, lane) as (
    (select 1, consumer_group, lane from stream.parked
     where (consumer_group, lane) >= (%(group)s, -2147483648) order by consumer_group, lane limit 1)
    union all
    select step.n + 1, next.consumer_group, next.lane
    from step cross join lateral (
        select consumer_group, lane from stream.parked p
        where (p.consumer_group, p.lane) > (step.consumer_group, step.lane)
        order by p.consumer_group, p.lane limit 1) next
    where step.consumer_group = %(group)s and step.n <= %(few)s
), met as materialized (select lane from step where consumer_group = %(group)s)
select lane from met where (select count(*) from met) <= %(few)s
union all
select n from unnest(%(lanes)s::int[]) n cross join lateral (
    select consumer_group, lane from stream.parked p
    where (p.consumer_group, p.lane) >= (%(group)s, n) order by p.consumer_group, p.lane limit 1) first
where first.consumer_group = %(group)s and first.lane = n and (select count(*) from met) > %(few)s
