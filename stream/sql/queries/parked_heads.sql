-- Each parked key once: its lowest row, how many stand behind it, and the letter a held one has.
select h.consumer_group as "group", h.topic, h.key, h.partition, h."offset", h.event_id, h.epoch, h.type, h.held,
       h.followers, h.attempts, h.since, h.last_failed_at, h.due_at, h.error_class, h.error_message,
       (select max(d.id) from stream.dead_letter d
        where h.held and d.event_id = h.event_id and d.consumer_group = h.consumer_group
          and d.status = 'open') as letter
from (
    select distinct on (p.consumer_group, p.topic, p.key, k.alone)
           p.*, coalesce(p.first_failed_at, p.parked_at) as since,
           (count(*) over (partition by p.consumer_group, p.topic, p.key, k.alone) - 1)::int as followers
    from stream.parked p
    cross join lateral (select case when p.key is null then p.partition end as alone) k
    where (%(group)s::text is null or p.consumer_group = %(group)s)
      and (%(topic)s::text is null or p.topic = %(topic)s)
      and (%(key)s::bytea is null or p.key = %(key)s)
      and (%(partition)s::int is null or (p.key is null and p.partition = %(partition)s))
    order by p.consumer_group, p.topic, p.key, k.alone, p.partition, p."offset", p.event_id, p.epoch
) h
order by h.since, h.consumer_group, h.topic, h.key
