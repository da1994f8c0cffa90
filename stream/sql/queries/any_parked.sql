select exists (select from stream.parked where consumer_group = %(group)s)
