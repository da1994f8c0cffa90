insert into stream.group_tables (consumer_group, sha256)
values (%(group)s, %(sha256)s)
on conflict (consumer_group) do update set sha256 = excluded.sha256, applied_at = clock_timestamp()
