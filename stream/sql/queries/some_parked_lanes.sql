-- Lanes of the group that have parked rows, one probe of the index each, however many rows they have.
with recursive parked (lane) as (
    (select p.lane from stream.parked p where p.consumer_group = %(group)s order by p.lane limit 1)
    union all
    select (select p.lane from stream.parked p where p.consumer_group = %(group)s and p.lane > l.lane
            order by p.lane limit 1)
    from parked l where l.lane is not null
)
select lane from parked where lane is not null limit %(most)s
