-- One parked row, as it was looked at.
delete from stream.parked
where consumer_group = %(group)s and topic = %(topic)s and partition = %(partition)s and "offset" = %(offset)s
  and event_id = %(event_id)s and epoch = %(epoch)s
