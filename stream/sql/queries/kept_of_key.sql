-- The records of a key, but for these events, that letters and parked rows hold, each event once: retention may have taken
-- them from their topic.
select distinct on (k.event_id) k.topic, k.partition, k."offset", k.key, k.timestamp, k.header_names, k.header_values
from (
    select d.event_id, d.topic, d.partition, d."offset", d.key, d.timestamp, d.header_names, d.header_values
    from stream.dead_letter d
    where d.key = %(key)s and d.topic = any (%(topics)s) and d.consumer_group = any (%(groups)s)
    union all
    select p.event_id, p.topic, p.partition, p."offset", p.key, p.timestamp, p.header_names, p.header_values
    from stream.parked p
    where p.consumer_group = any (%(groups)s) and p.topic = any (%(topics)s) and sha256(p.key) = sha256(%(key)s::bytea)
) k
where k.event_id <> all (%(ids)s)
order by k.event_id, k.partition, k."offset"
