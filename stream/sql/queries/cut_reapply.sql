-- What is left of a range, in its place.
with gone as (
    delete from stream.reapply where id = %(id)s returning *
)
insert into stream.reapply
    (consumer_group, epoch, topic, partition, from_offset, to_offset, old_offset, status, reason, who, at)
select g.consumer_group, g.epoch, g.topic, g.partition, r.low, r.high, g.old_offset, g.status, g.reason, g.who, g.at
from gone g, unnest(%(lows)s::bigint[], %(highs)s::bigint[]) r (low, high)
