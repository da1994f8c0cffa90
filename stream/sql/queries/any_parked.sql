-- Is anything of the group parked? Its first row in the index of lanes: asked for any row, PostgreSQL would read all
-- rows of the others in the hope of one of the group, where most are another's.
select (select true from stream.parked where consumer_group = %(group)s order by lane limit 1) is not null
