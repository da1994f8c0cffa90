-- Partitions that came later, and who grew the topic so far with our command, if somebody did.
select p.consumer_group as "group", p.topic, p.partition, p.at,
       (select a.who from stream.operator_action a
        where a.action = 'topics grow' and a.target = p.topic and a.at <= p.at
          and (a.parameters ->> 'from')::int <= p.partition and p.partition < (a.parameters ->> 'to')::int
        order by a.at desc limit 1) as by
from stream.grown_partition p
where %(group)s::text is null or p.consumer_group = %(group)s
order by p.at desc, p.topic, p.partition
