-- Rows of one key that are not in a topic yet, in one snapshot: so a row that moves between is seen once.
select 'waiting' as state, o.topic, o.event_id, o.type, o."time", o.created_at,
       null::timestamptz as due_at, null as reason, null as error, o.id
from stream.outbox o
where o.key = %(key)s and o.shard = (get_byte(sha256(%(key)s::bytea), 0) %% 64)::smallint
union all
select 'rejected', r.topic, r.event_id, r.type, r."time", r.created_at, null, r.reason, r.error, r.id
from stream.outbox_rejected r where r.key = %(key)s
union all
select 'scheduled', s.topic, s.event_id, s.type, s."time", s.created_at, s.due_at, null, null, s.id
from stream.scheduled s where s.key = %(key)s
order by created_at, id
