-- The row that the letter's key is held by, if it is.
delete from stream.parked p using stream.dead_letter d
where d.id = %(letter)s and p.consumer_group = d.consumer_group and p.topic = d.topic and p.partition = d.partition
  and p."offset" = d."offset" and p.event_id = d.event_id and p.held
returning p.lane
