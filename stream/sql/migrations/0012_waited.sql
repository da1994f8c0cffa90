-- What waited in stream.parked and is gone from there: since when, until when, and the tries that failed. For people
-- who ask what happened; nothing is decided by it.
create table stream.waited (
    consumer_group text not null,
    event_id       uuid not null,
    epoch          int not null,
    parked_at      timestamptz not null,
    left_at        timestamptz not null default clock_timestamp(),
    errors         jsonb not null             -- as in stream.parked; empty: it was a follower all the time
);
create index waited_event on stream.waited (event_id, consumer_group);
create index waited_at on stream.waited (left_at);  -- for pruning

-- A trigger, so that whoever deletes a parked row, and there are many, cannot forget it.
create function stream.remember_waited() returns trigger
    language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    insert into stream.waited (consumer_group, event_id, epoch, parked_at, errors)
    select g.consumer_group, g.event_id, stream.epoch_of(g.consumer_group, g.topic, g.partition, g."offset"),
           g.parked_at, g.errors
    from gone g;
    return null;
end $$;
create trigger remember_waited after delete on stream.parked
    referencing old table as gone for each statement execute function stream.remember_waited();

create index operator_action_event on stream.operator_action ((parameters ->> 'event_id'));
