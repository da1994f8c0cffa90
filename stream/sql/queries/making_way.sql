-- The processes of the group that are there, and whether each has left the broker's group for this rewind.
select w.worker, w.made_way_for is not distinct from %(rewind)s
from stream.worker w
where w.consumer_group = %(group)s and stream.is_member(w.consumer_group, w.session)
order by w.worker
