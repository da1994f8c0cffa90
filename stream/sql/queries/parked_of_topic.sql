-- How many events of a topic are parked.
select count(*) from stream.parked where consumer_group = %(group)s and topic = %(topic)s
