-- What became of a rewind: null while it is open, 'cut off' where its command is gone.
select coalesce(r.result, case when not stream.is_rewinding(r.id) then 'cut off' end)
from stream.rewind r
where r.id = %(rewind)s
