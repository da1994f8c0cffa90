-- What an earlier range set aside below where the group stood has been read again since.
with read as (
    delete from stream.reapply_parked a using stream.reapply r
    where r.consumer_group = %(group)s and r.epoch = %(epoch)s and a.consumer_group = r.consumer_group
      and a.topic = r.topic and a.partition = r.partition and a."offset" < r.old_offset
), moved as (
    delete from stream.parked p using stream.reapply r
    where r.consumer_group = %(group)s and r.epoch = %(epoch)s and p.consumer_group = r.consumer_group
      and p.topic = r.topic and p.partition = r.partition
      and p."offset" >= r.from_offset and p."offset" < r.to_offset
    returning p.*
), kept as (
    insert into stream.reapply_parked select * from moved
    on conflict do nothing
)
select count(*) from moved
