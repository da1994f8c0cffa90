-- This process is there for as long as this session is; of others it is forgotten whose session has ended.
with gone as (
    delete from stream.worker w
    where w.consumer_group = %(group)s and w.worker <> %(worker)s
      and (w.session = pg_backend_pid() or not stream.is_member(w.consumer_group, w.session))
)
insert into stream.worker (consumer_group, worker, session) values (%(group)s, %(worker)s, pg_backend_pid())
on conflict (consumer_group, worker) do update
set session = excluded.session, seen_at = clock_timestamp(), progress = null, handling = '[]'
