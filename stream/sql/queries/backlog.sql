-- What waits of one group: parked rows, their keys (to be tried again, or held), since when, and its open letters.
select p.rows, p.keys - p.held as waiting, p.held, extract(epoch from p.first_at)::float8,
       d.letters, extract(epoch from d.first_at)::float8
from (select coalesce(sum(k.rows), 0)::bigint as rows, count(*) as keys, count(*) filter (where k.held) as held,
             min(k.first_at) as first_at
      from (select count(*) as rows, bool_or(r.held) as held, min(coalesce(r.first_failed_at, r.parked_at)) as first_at
            from stream.parked r where r.consumer_group = %(group)s
            group by r.topic, r.key, case when r.key is null then r.partition end) k) p,
     (select count(*) as letters, min(l.died_at) as first_at
      from stream.dead_letter l where l.consumer_group = %(group)s and l.status = 'open') d
