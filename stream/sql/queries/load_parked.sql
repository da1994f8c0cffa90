-- The first rows of each lane in their order, up to the first that is held or not due: it holds those behind it.
select p.topic, p.partition, p."offset", p.event_id, p.epoch, p.key, p.value, p.header_names, p.header_values,
       (extract(epoch from p.timestamp) * 1000)::bigint, p.lane, p.attempts,
       coalesce(extract(epoch from clock_timestamp() - p.first_failed_at)::float8, 0), p.due_at is null
from unnest(%(lanes)s::int[]) with ordinality l(lane, n) cross join lateral (
    select f.*, count(*) filter (where f.held or f.due_at > clock_timestamp())
                    over (order by f.partition, f."offset", f.event_id, f.epoch) as barred
    from (
        select * from stream.parked q
        where q.consumer_group = %(group)s and q.lane = l.lane
        order by q.partition, q."offset", q.event_id, q.epoch
        limit %(limit)s
    ) f
) p
where p.barred = 0
order by l.n, p.partition, p."offset", p.event_id, p.epoch
