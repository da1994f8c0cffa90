-- One cheap look: the last id taken, the clock, and the first due row of these shards, from the floor of due times on.
select case when s.is_called then s.last_value else 0 end,
       (extract(epoch from now()) * 1000000)::bigint,
       (select (extract(epoch from d.due_at) * 1000000)::bigint from stream.scheduled d
        where d.due_at <= now() and d.due_at >= to_timestamp(%(floor)s / 1000000.0)
          and d.shard = any (%(shards)s::smallint[])
        order by d.due_at limit 1)
from stream.outbox_id_seq s
