update stream.group_state s
set partitions_seen = (
    select jsonb_object_agg(topic, partitions)
    from (
        select topic, jsonb_agg(partition order by partition) partitions
        from (
            select seen.key topic, p.value::int partition
            from jsonb_each(s.partitions_seen) seen, jsonb_array_elements_text(seen.value) p
            union
            select * from unnest(%(topics)s::text[], %(partitions)s::int[])
        ) all_of_them
        group by topic
    ) by_topic
)
where consumer_group = %(group)s
