-- Whether shards that this relay does not own have rows to publish, of topics that can be written, or rows due.
select exists (select from stream.outbox
               where shard <> all (%(shards)s::smallint[]) and topic <> all (%(sick)s::text[])
                 and topic not in (select topic from stream.sick_topic))
    or exists (select from stream.scheduled where due_at <= now() and shard <> all (%(shards)s::smallint[]))
