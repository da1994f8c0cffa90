-- Which of these lanes have parked rows.
select n from unnest(%(lanes)s::int[]) n
where exists (select from stream.parked p where p.consumer_group = %(group)s and p.lane = n)
