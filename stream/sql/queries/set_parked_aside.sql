with moved as (
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
