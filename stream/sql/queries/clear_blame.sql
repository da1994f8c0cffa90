delete from stream.suspect
where consumer_group = %(group)s and topic = %(topic)s and partition = %(partition)s and "offset" = %(offset)s
