-- The topics that have rows, one index probe a topic.
with recursive found (topic) as (
    (select topic from stream.outbox order by topic limit 1)
    union all
    select (select o.topic from stream.outbox o where o.topic > found.topic order by o.topic limit 1)
    from found where found.topic is not null
)
select topic from found where topic is not null
