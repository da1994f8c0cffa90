insert into stream.gap (consumer_group, topic, partition, from_offset, to_offset)
values (%s, %s, %s, %s, %s)
on conflict (consumer_group, topic, partition, from_offset) do update set to_offset = excluded.to_offset, at = now()
