-- Of what is to run again: rows that wait for a try or a person, and open letters.
select (select count(*) from stream.parked p
        join unnest(%(topics)s::text[], %(partitions)s::int[], %(starts)s::bigint[], %(ends)s::bigint[])
             r (topic, partition, start, "end") using (topic, partition)
        where p.consumer_group = %(group)s and p."offset" >= r.start and p."offset" < r."end"),
       (select count(*) from stream.dead_letter d
        join unnest(%(topics)s::text[], %(partitions)s::int[], %(starts)s::bigint[], %(ends)s::bigint[])
             r (topic, partition, start, "end") using (topic, partition)
        where d.consumer_group = %(group)s and d.status = 'open' and d."offset" >= r.start and d."offset" < r."end")
