-- Events whose key is parked, behind it. One that is there already stays as it is: it was read twice. One that comes to
-- stand first (what stands there was parked when it came later in its topic) is the live head from now on.
with behind as (
insert into stream.parked (consumer_group, topic, partition, "offset", event_id, epoch, type, key, value,
                           header_names, header_values, timestamp, lane)
select %(group)s, r.topic, r.partition, r."offset", r.event_id, %(epoch)s, r.type, r.key, r.value,
       r.names::text[], r.vals::bytea[], to_timestamp(r.stamp / 1000.0), r.lane
from unnest(%(topics)s::text[], %(partitions)s::int[], %(offsets)s::bigint[], %(ids)s::uuid[], %(types)s::text[],
            %(keys)s::bytea[], %(values)s::bytea[], %(names)s::text[], %(vals)s::text[], %(stamps)s::bigint[],
            %(lanes)s::int[])
     r(topic, partition, "offset", event_id, type, key, value, names, vals, stamp, lane)
on conflict do nothing
returning lane, partition, "offset", event_id, epoch
)
select stream.leave_live_heads(%(group)s, array_agg(b.lane)) from behind b
where not exists (
    select from stream.parked p where p.consumer_group = %(group)s and p.lane = b.lane
      and (p.partition, p."offset", p.event_id, p.epoch) < (b.partition, b."offset", b.event_id, b.epoch))
having count(*) > 0
