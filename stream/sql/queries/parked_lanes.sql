-- Each is looked up by its key: see applied.sql.
select n from unnest(%(lanes)s::int[]) n cross join lateral (
    select from stream.parked p where p.consumer_group = %(group)s and p.lane = n limit 1) p
