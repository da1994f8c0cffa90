-- The last blame taken back: it was not tried.
with gone as (
    delete from stream.suspect
    where consumer_group = %(group)s and topic = %(topic)s and partition = %(partition)s and "offset" = %(offset)s
      and crashes = 1
)
update stream.suspect set crashes = crashes - 1
where consumer_group = %(group)s and topic = %(topic)s and partition = %(partition)s and "offset" = %(offset)s
  and crashes > 1
