-- What people did with these events while they were parked: released, retried, discarded. A letter itself says what was
-- done with it.
select a.parameters ->> 'event_id', a.target, a.at, a.who, a.result, a.reason
from stream.operator_action a
where a.action in ('parked release', 'parked retry', 'parked discard')
  and a.parameters ->> 'event_id' = any (%(ids)s::text[])
