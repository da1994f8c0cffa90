select distinct a.lane from stream.reapply_parked a
where a.consumer_group = %(group)s and a.topic = %(topic)s and a.partition = %(partition)s
  and a."offset" >= %(low)s and a."offset" < %(high)s
