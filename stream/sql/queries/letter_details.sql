-- Letters with all that is known of them; `held` and `followers` say what their key does meanwhile, `newer` is the last
-- letter of the same event.
select l.id, l.consumer_group as "group", l.event_id, l.type, l.key, l.topic, l.partition, l."offset", l.kind, l.stage,
       l.error_class, l.error_message, l.attempts, l.first_failed_at, l.last_failed_at, l.worker, l.trace_id, l.status,
       l.epoch, l.value, l.header_names, l.header_values, l.timestamp, l.error_stack, l.errors, l.fingerprint,
       l.on_dead, l.replays, l.died_at, l.resolved_at, l.resolved_by, l.resolved_reason, p.held, p.followers,
       (select max(n.id) from stream.dead_letter n
        where n.event_id = l.event_id and n.consumer_group = l.consumer_group and n.id > l.id) as newer
from stream.letters(%(status)s, %(group)s, %(error_class)s, %(stage)s, %(since)s, %(until)s, %(key)s, %(fingerprint)s,
                    %(ids)s::bigint[], %(up_to)s) l
cross join lateral (
    select coalesce(bool_or(q.held and q."offset" = l."offset" and q.partition = l.partition
                            and q.event_id = l.event_id), false) as held,
           (count(*) filter (where (q.partition, q."offset") > (l.partition, l."offset")))::int as followers
    from stream.parked q
    where q.consumer_group = l.consumer_group
      and q.lane = stream.parked_lane(l.consumer_group, l.topic, l.key, l.partition)
) p
order by l.id
