-- The next slots of the group; returns in how many seconds the first of them is.
with booked as (
    update stream.group_state
    set next_slot = greatest(next_slot, clock_timestamp()) + %(step_s)s * %(count)s * interval '1 second'
    where consumer_group = %(group)s
    returning next_slot - %(step_s)s * %(count)s * interval '1 second' as first
)
select greatest(extract(epoch from first - clock_timestamp()), 0)::float8 from booked
