select distinct p.lane
from stream.reapply r
join stream.parked p on p.consumer_group = r.consumer_group and p.topic = r.topic and p.partition = r.partition
     and p."offset" >= r.from_offset and p."offset" < r.to_offset
where r.consumer_group = %(group)s and r.epoch = %(epoch)s
