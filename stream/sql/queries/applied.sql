select event_id from stream.ledger
where consumer_group = %(group)s and epoch = %(epoch)s and event_id = any (%(ids)s::uuid[])
