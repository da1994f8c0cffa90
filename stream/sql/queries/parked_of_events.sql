-- Events that wait for another try, behind a failed one of their key, or for an operator; as outcomes_of_events.sql.
select p.event_id, p.consumer_group, null, null, nullif(p.attempts, 0),
       stream.epoch_of(p.consumer_group, p.topic, p.partition, p."offset"), p.worker,
       case when p.held then 'held for an operator: ' || p.error_class || ': ' || p.error_message
            when h.letter is not null then 'behind letter ' || h.letter || ', which is held'
            when p.error_class is null then 'behind an earlier event of its key that failed'
            else 'failed, again ' || case when p.due_at <= now() then 'now'
                                          else 'in ' || ceil(extract(epoch from p.due_at - now())) || ' s' end
                 || ': ' || p.error_class || ': ' || p.error_message end
from stream.parked p
left join lateral (
    -- The letter that the key is held by.
    select (select max(d.id) from stream.dead_letter d
            where f.held and d.event_id = f.event_id and d.consumer_group = f.consumer_group
              and d.status = 'open') as letter
    from (select * from stream.parked q where q.consumer_group = p.consumer_group and q.lane = p.lane
          order by q.partition, q."offset", q.event_id, q.epoch limit 1) f
) h on true
where p.consumer_group = any (%(groups)s) and p.topic = any (%(topics)s) and sha256(p.key) = sha256(%(key)s::bytea)
  and p.event_id = any (%(ids)s)
order by p.consumer_group, p.epoch
