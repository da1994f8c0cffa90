-- The group begins on a topic anew; what is known of positions in the old one is forgotten. Returns the lanes of what
-- a range run again had set aside, and is parked again: they are to have their live heads.
with positions as (
    delete from stream.suspect where consumer_group = %(group)s and topic = %(topic)s
), owned as (
    delete from stream.assignment where consumer_group = %(group)s and topic = %(topic)s
), grown as (
    delete from stream.grown_partition where consumer_group = %(group)s and topic = %(topic)s
), ranges as (
    delete from stream.reapply where consumer_group = %(group)s and topic = %(topic)s
), aside as (
    delete from stream.reapply_parked where consumer_group = %(group)s and topic = %(topic)s returning *
), back as (
    insert into stream.parked select * from aside on conflict do nothing returning lane
), begun as (
    update stream.group_state
    set topic_ids = topic_ids || jsonb_build_object(%(topic)s::text, %(id)s::text),
        start_offsets = start_offsets || jsonb_build_object(%(topic)s::text, %(offsets)s::jsonb),
        history_ends = history_ends || jsonb_build_object(%(topic)s::text, %(ends)s::jsonb),
        partitions_seen = partitions_seen - %(topic)s::text
    where consumer_group = %(group)s
)
select coalesce(array_agg(lane), '{}') from back
