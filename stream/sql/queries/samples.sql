-- The looks of the last while, oldest first.
select s.consumer_group, s.at, s.topics, s.partitions, s.committed, s.ends
from stream.sample s
where s.consumer_group = any (%(groups)s::text[])
  and s.at > clock_timestamp() - %(window_s)s * interval '1 second'
order by s.at
