-- Ledger rows from before a time, group by group: how many, since when, and what of it is still dealt with.
select o.consumer_group as "group", o.rows, o.oldest_at,
       coalesce((select s.topic_ids from stream.group_state s where s.consumer_group = o.consumer_group), '{}') as met,
       (select count(distinct (p.topic, p.partition, p."offset")) from stream.parked p
        join stream.ledger l on l.consumer_group = p.consumer_group and l.event_id = p.event_id and l.at < %(before)s
        where p.consumer_group = o.consumer_group) as parked,
       (select count(distinct d.id) from stream.dead_letter d
        join stream.ledger l on l.consumer_group = d.consumer_group and l.event_id = d.event_id and l.at < %(before)s
        where d.consumer_group = o.consumer_group and d.status = 'open') as letters
from (select consumer_group, count(*) as rows, min(at) as oldest_at
      from stream.ledger
      where at < %(before)s and (%(group)s::text is null or consumer_group = %(group)s)
      group by consumer_group) o
order by o.consumer_group
