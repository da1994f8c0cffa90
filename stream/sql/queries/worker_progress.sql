insert into stream.worker (consumer_group, worker, progress) values (%(group)s, %(worker)s, %(progress)s)
on conflict (consumer_group, worker) do update set seen_at = clock_timestamp(), progress = excluded.progress
