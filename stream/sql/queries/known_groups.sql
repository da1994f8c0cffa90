-- Every group that left anything here; of the letters, which may be many, one look a group.
with recursive buried(name) as (
    select min(consumer_group) from stream.dead_letter
    union all
    select (select min(d.consumer_group) from stream.dead_letter d where d.consumer_group > b.name)
    from buried b where b.name is not null
)
select name from buried where name is not null
union select consumer_group from stream.group_state
union select consumer_group from stream.parked
order by 1
