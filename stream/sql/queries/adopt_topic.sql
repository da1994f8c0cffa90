-- The group begins on a topic anew; what is known of positions in the old one is forgotten. Returns how many of its
-- events are parked.
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
), called as (
    select stream.leave_live_heads(%(group)s, array(select lane from back)) as n
), begun as (
    update stream.group_state
    set topic_ids = topic_ids || jsonb_build_object(%(topic)s::text, %(id)s::text),
        start_offsets = start_offsets || jsonb_build_object(%(topic)s::text, %(offsets)s::jsonb),
        history_ends = history_ends || jsonb_build_object(%(topic)s::text, %(ends)s::jsonb),
        partitions_seen = partitions_seen - %(topic)s::text
    where consumer_group = %(group)s
)
select count(*) from stream.parked where consumer_group = %(group)s and topic = %(topic)s
