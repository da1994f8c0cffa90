-- One cheap look: has an id been taken since, is anything due, which topics are there?
select last_value, is_called,
       exists (select from stream.scheduled where due_at <= clock_timestamp() and shard = any (%(shards)s::smallint[])),
       array(select topic from stream.outbox_topic)
from stream.outbox_id_seq
