-- Keys that are parked or held, each once.
select key, min(partition), bool_or(held) from stream.parked
where consumer_group = %(group)s group by topic, key, case when key is null then partition end
order by 1 limit %(limit)s
