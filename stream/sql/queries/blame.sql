insert into stream.suspect as s (consumer_group, topic, partition, "offset", crashes)
values (%(group)s, %(topic)s, %(partition)s, %(offset)s, 1)
on conflict (consumer_group, topic, partition, "offset") do update set crashes = s.crashes + 1, at = clock_timestamp()
returning crashes
