-- What the database knows of its groups: what holds each, how many processes there are, what waits, what died.
select s.consumer_group as "group", s.topic_ids, s.history_ends,
       (select count(*) from stream.worker w
        where w.consumer_group = s.consumer_group and stream.is_member(w.consumer_group, w.session)) as members,
       p.keys - p.held as parked, p.held, p.held_key,
       (select count(*) from stream.dead_letter d
        where d.consumer_group = s.consumer_group and d.status = 'open') as dead,
       s.halted_at is not null as halted, s.halted_at, s.halted_reason,
       coalesce(s.paused_until > clock_timestamp(), false) as paused, s.paused_at, s.paused_reason,
       nullif(s.paused_until, 'infinity') as paused_until,
       s.breaker_open_since is not null as broken, s.breaker_open_since, s.breaker_reason
from stream.group_state s
cross join lateral (
    select count(*) as keys, count(*) filter (where k.held) as held,
           (array_agg(k.key order by k.since) filter (where k.held))[1] as held_key
    from (select r.key, bool_or(r.held) as held, min(r.first_failed_at) as since from stream.parked r
          where r.consumer_group = s.consumer_group
          group by r.topic, r.key, case when r.key is null then r.partition end) k
) p
where %(group)s::text is null or s.consumer_group = %(group)s
order by s.consumer_group
