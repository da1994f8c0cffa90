-- The first rows of every owned shard of every healthy topic, in one snapshot, at most %(bytes)s bytes in all.
-- Whether a key has rejected rows is read here too: in a statement of its own, a retry committing in between would
-- let a later row pass. Left out: rows in memory, and the later rows of keys that have a queue there already.
select r.id, r.shard, r.topic, r.key, r.event_id, r.type, r."time", r.payload, r.data, r.header_names, r.header_values,
       r.behind_rejected, r.total
from (
    select o.*,
           any_rejected.yes and o.key is not null and exists (
               select from stream.outbox_rejected x
               where x.topic = o.topic and x.shard = o.shard and x.key = o.key) as behind_rejected,
           sum(coalesce(octet_length(o.payload), pg_column_size(o.data), 0)) over (rows unbounded preceding) as bytes,
           row_number() over (rows unbounded preceding) as n,
           count(*) over () as total
    from (select exists (select from stream.outbox_rejected) as yes offset 0) any_rejected,
         unnest(%(topics)s::text[], %(shards)s::smallint[], %(floors)s::bigint[], %(limits)s::int[])
             as wanted(topic, shard, floor, most)
    cross join lateral (
        select u.id, u.shard, u.topic, u.key, u.event_id::text, u.type, u."time", u.payload, u.data,
               u.header_names, u.header_values
        from stream.outbox u
        where u.topic = wanted.topic and u.shard = wanted.shard and u.id > wanted.floor
          and u.id <> all (%(known)s::bigint[]) and (u.key is null or u.key <> all (%(queued)s::bytea[]))
        order by u.id limit wanted.most) o
) r
where r.bytes <= %(bytes)s or r.n = 1
