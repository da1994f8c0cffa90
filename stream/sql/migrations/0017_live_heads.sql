-- Looked for as a join, the heads of a group that the statistics of stream.parked do not know yet cost one look at all
-- its rows for each lane. Here each lane's lowest row is looked up, then updated where it stands: the lock lets it
-- change no more between the two statements.
create or replace function stream.leave_live_heads(consumer_group text, lanes int[]) returns int
    language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    most   constant int := coalesce((select s.most_record_bytes from stream.group_state s
                                     where s.consumer_group = $1), 1048588);
    nudge  constant interval := coalesce((select s.nudge_after from stream.group_state s
                                          where s.consumer_group = $1), '1 minute');
    places tid[];
    heads  stream.parked[];
begin
    select array_agg(low.place) into places
    from (select distinct n from unnest(lanes) n) l cross join lateral (
        select p.ctid as place, p.held from stream.parked p
        where p.consumer_group = $1 and p.lane = l.n
        order by p.partition, p."offset", p.event_id, p.epoch limit 1 for update) low
    where not low.held;
    with live as (
        update stream.parked p
        set due_at = coalesce(p.due_at, clock_timestamp()), nudges = 0,
            nudge_at = greatest(p.due_at, clock_timestamp()) + nudge
        where p.ctid = any (places)
        returning p
    )
    select array_agg(live.p) into heads from live;
    perform stream.wake(heads, most);
    return coalesce(cardinality(heads), 0);
end $$;
