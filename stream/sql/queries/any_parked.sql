-- Is anything of the group parked?
select exists (select from stream.parked where consumer_group = %(group)s)
