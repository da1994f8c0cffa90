select stream.epoch_of(consumer_group, topic, partition, "offset") from stream.dead_letter where id = %(letter)s
