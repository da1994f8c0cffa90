-- The chosen letters, those of a key together and in its order: in this order they are acted on.
select l.id, l.consumer_group, l.fingerprint, l.kind, l.error_class, l.lane, l.on_dead, l.replays,
       exists (select from stream.ledger e
               where e.consumer_group = l.consumer_group and e.event_id = l.event_id and e.epoch = l.epoch
                 and e.outcome <> 'dead') as applied
from (
    select d.*, min(d.id) over (partition by d.consumer_group, d.lane) as first_of_lane
    from (
        select c.id, c.consumer_group, c.fingerprint, c.kind, c.error_class, c.on_dead, c.replays, c.event_id,
               c.epoch, c.partition, c."offset",
               stream.parked_lane(c.consumer_group, c.topic, c.key, c.partition) as lane
        from stream.letters(%(status)s, %(group)s, %(error_class)s, %(stage)s, %(since)s, %(until)s, %(key)s, %(fingerprint)s,
                    %(ids)s::bigint[], %(up_to)s) c
    ) d
) l
order by l.first_of_lane, l.partition, l."offset", l.id
