-- As it was; but not what was applied since.
with back as (
    delete from stream.reapply_parked a
    where a.consumer_group = %(group)s and a.topic = %(topic)s and a.partition = %(partition)s
      and a."offset" >= %(low)s and a."offset" < %(high)s
    returning a.*
)
insert into stream.parked
select b.* from back b
where not exists (select from stream.ledger l
                  where l.consumer_group = b.consumer_group and l.event_id = b.event_id
                    and l.outcome in ('done', 'skipped')
                    and l.epoch >= (select coalesce(max(r.epoch), 0) from stream.reapply r
                                    where r.consumer_group = b.consumer_group and r.topic = b.topic
                                      and r.partition = b.partition and b."offset" >= r.from_offset
                                      and b."offset" < r.to_offset))
on conflict do nothing
