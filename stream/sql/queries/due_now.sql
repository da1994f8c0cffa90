-- A waiting row, as it was looked at, is due.
update stream.parked set due_at = clock_timestamp()
where consumer_group = %(group)s and topic = %(topic)s and partition = %(partition)s and "offset" = %(offset)s
  and event_id = %(event_id)s and epoch = %(epoch)s
