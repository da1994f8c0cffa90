-- What was seen, and nothing older than is still of use.
with old as (
    delete from stream.sample
    where consumer_group = %(group)s and at < %(at)s - %(keep_s)s * interval '1 second'
)
insert into stream.sample (consumer_group, at, topics, partitions, committed, ends)
values (%(group)s, %(at)s, %(topics)s, %(partitions)s, %(committed)s, %(ends)s)
on conflict do nothing
