-- The processes of a group: those that are there, and those that died with partitions nobody has taken over.
select coalesce(w.worker, a.worker) as worker, coalesce(w.there, false) as there, coalesce(a.partitions, 0) as partitions,
       w.progress, w.seen_at, coalesce(w.handling, '[]') as handling
from (select x.worker, x.progress, x.seen_at, x.handling, stream.is_member(x.consumer_group, x.session) as there
      from stream.worker x where x.consumer_group = %(group)s) w
full join (select y.worker, count(*) as partitions from stream.assignment y
           where y.consumer_group = %(group)s and y.released_at is null group by y.worker) a on a.worker = w.worker
where coalesce(w.there, false) or a.worker is not null
order by 1
