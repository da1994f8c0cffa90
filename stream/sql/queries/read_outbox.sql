-- The first rows of every owned shard of every healthy topic, in one snapshot, at most %(bytes)s bytes in all.
-- Whether a key has rejected rows is read here too: in a statement of its own, a retry committing in between would
-- let a later row pass. Left out: rows in memory, and the later rows of keys that have a long queue there.
select r.id, r.shard, r.topic, r.key, r.event_id, r.type, r."time", r.payload, r.data, r.header_names, r.header_values,
       r.behind_rejected, r.size, r.total
from (
    select o.*,
           any_rejected.yes and o.key is not null and (  -- not "exists", which may hash the whole table each time
               select true from stream.outbox_rejected x where x.key = o.key and x.topic = o.topic limit 1
           ) is not null as behind_rejected,
           sum(o.size) over (rows unbounded preceding) as bytes,
           row_number() over (rows unbounded preceding) as n,
           count(*) over () as total
    from (select exists (select from stream.outbox_rejected) as yes offset 0) any_rejected,
         (select topic, shard, floor, most, left_out::bytea[] as left_out
          from unnest(%(topics)s::text[], %(shards)s::smallint[], %(floors)s::bigint[], %(limits)s::int[],
                      %(left_out)s::text[]) as w(topic, shard, floor, most, left_out) offset 0) wanted
    cross join lateral (
        select u.id, u.shard, u.topic, u.key, u.event_id::text, u.type, u."time", u.payload, u.data,
               u.header_names, u.header_values,
               coalesce(octet_length(u.payload), pg_column_size(u.data), 0)
                   + coalesce(pg_column_size(u.header_values), 0) as size
        from stream.outbox u
        where u.topic = wanted.topic and u.shard = wanted.shard and u.id > wanted.floor
          and u.id <> all (%(known)s::bigint[]) and (u.key is null or u.key <> all (wanted.left_out))
        order by u.id limit wanted.most) o
) r
where r.bytes <= %(bytes)s or r.n = 1
