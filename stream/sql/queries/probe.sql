-- One cheap look: has an id been taken since, and is anything due?
select last_value, is_called,
       exists (select from stream.scheduled where due_at <= clock_timestamp() and shard = any (%(shards)s::smallint[]))
from stream.outbox_id_seq
