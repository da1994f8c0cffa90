select epoch, topic, partition, from_offset, to_offset, old_offset from stream.reapply where consumer_group = %s
