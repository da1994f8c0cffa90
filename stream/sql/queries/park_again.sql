-- As it was. What was applied since is a duplicate when it runs.
with back as (
    delete from stream.reapply_parked a
    where a.consumer_group = %(group)s and a.topic = %(topic)s and a.partition = %(partition)s
      and a."offset" >= %(low)s and a."offset" < %(high)s
    returning a.*
)
insert into stream.parked select * from back
on conflict do nothing
