select id, topic, partition, from_offset, to_offset, old_offset from stream.reapply
where consumer_group = %(group)s and topic = %(topic)s and partition = %(partition)s
  and from_offset < %(high)s and to_offset > %(low)s
order by id
for update
