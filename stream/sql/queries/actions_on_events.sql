-- What people did with these events while they were parked: released, retried, discarded, each in the epoch that its
-- position had then. A letter itself says what was done with it.
select a.parameters ->> 'event_id', split_part(a.target, ',', 1),
       coalesce((select max(r.epoch) from stream.reapply r
                 where r.consumer_group = split_part(a.target, ',', 1) and r.topic = p[1] and r.partition = p[2]::int
                   and p[3]::bigint >= r.from_offset and p[3]::bigint < r.to_offset and r.at <= a.at), 0),
       a.at, a.who, a.result, a.reason
from stream.operator_action a
cross join lateral regexp_match(a.parameters ->> 'position', '^(.*)\[([0-9]+)\]@([0-9]+)$') p
where a.action in ('parked release', 'parked retry', 'parked discard')
  and a.parameters ->> 'event_id' = any (%(ids)s::text[])
