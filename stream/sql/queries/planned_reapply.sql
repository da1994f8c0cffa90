select epoch, who, reason, at, topic, partition, from_offset, to_offset, old_offset from stream.reapply
where consumer_group = %s and status = 'planned'
order by topic, partition, from_offset
