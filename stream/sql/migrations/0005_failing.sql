-- Failing: what waits for its next try, what was given up, and what all processes of a group must agree on.
--
-- Who writes what:
--   parked       the group's workers, in the transaction of the run (parking.py); operators release, replay, discard.
--                Always under `stream.lock_lanes` of the row's lane, always ending with `stream.leave_live_heads`.
--   dead_letter  the group's workers, with the ledger outcome `dead` and the record in <group>.dlq, in one
--                transaction; operators set `status` and what stands behind it.
--   suspect      the group's workers, before and after each try of a record that may have killed its process.
--   worker       each process, about itself.
--   group_state  the columns below: the group's workers (control.py); operators pause and resume.

create table stream.parked (
    consumer_group  text not null,
    topic           text not null,
    partition       int not null,
    "offset"        bigint not null,
    event_id        uuid not null,
    epoch           int not null default 0,
    type            text,                     -- as its header says; null where there is none
    key             bytea,
    value           bytea,
    header_names    text[] not null,
    header_values   bytea[] not null,
    timestamp       timestamptz not null,     -- the broker's
    lane            int not null,             -- stream.parked_lane: what is kept in order, and the number of its lock
    attempts        int not null default 0,   -- tries that failed and counted
    due_at          timestamptz,              -- null: a follower, it runs when what stands before it is out of the way
    held            boolean not null default false,  -- dead, and its key waits for an operator
    first_failed_at timestamptz,
    last_failed_at  timestamptz,
    error_kind      text,                     -- failure | unavailable, once dead as in dead_letter
    error_stage     text,
    error_class     text,
    error_message   text,
    errors          jsonb not null default '[]',  -- newest first, at most 20: attempt, at, worker, class, message
    fingerprint     text,
    worker          text,
    parked_at       timestamptz not null default clock_timestamp(),
    nudge_at        timestamptz,              -- of a live head: when its record is published again if it is still here
    nudges          int not null default 0,
    replays         int not null default 0,   -- how often it was dead and replayed before
    primary key (consumer_group, topic, partition, "offset", event_id, epoch)
);
alter table stream.parked alter value set storage external;
-- Every look goes through this one: is anything of the group parked, of this lane, and which is its lowest row?
create index parked_lane on stream.parked (consumer_group, lane, partition, "offset", event_id, epoch);
create index parked_key on stream.parked (consumer_group, topic, sha256(key));
create index parked_nudge on stream.parked (consumer_group, nudge_at) where nudge_at is not null and not held;

create table stream.dead_letter (
    id              bigint generated always as identity primary key,
    consumer_group  text not null,
    topic           text not null,
    partition       int not null,
    "offset"        bigint not null,
    event_id        uuid not null,
    epoch           int not null default 0,
    type            text,
    key             bytea,
    value           bytea,
    header_names    text[] not null,
    header_values   bytea[] not null,
    timestamp       timestamptz not null,
    kind            text not null check (kind in ('permanent', 'exhausted', 'unavailable', 'decode', 'crash')),
    stage           text not null,            -- decode | handler | commit
    error_class     text not null,
    error_message   text not null,
    error_stack     text,
    errors          jsonb not null,           -- newest first, at most 20
    fingerprint     text not null,
    attempts        int not null,
    first_failed_at timestamptz not null,
    last_failed_at  timestamptz not null,
    worker          text not null,
    trace_id        text,
    died_at         timestamptz not null default clock_timestamp(),
    on_dead         text not null check (on_dead in ('release', 'hold')),  -- what became of its key
    deploy_fault    boolean not null,         -- of the kind that a bad deploy makes: counts for the halt
    replays         int not null default 0,   -- replays of this event before this letter
    status          text not null default 'open' check (status in ('open', 'replayed', 'discarded', 'superseded')),
    resolved_at     timestamptz,
    resolved_by     text,
    resolved_reason text
);
alter table stream.dead_letter alter value set storage external;
create index dead_letter_group on stream.dead_letter (consumer_group, id);
create index dead_letter_open on stream.dead_letter (consumer_group, fingerprint, id) where status = 'open';
-- Looked at once a second: did anything die of late of what a bad deploy does?
create index dead_letter_fault on stream.dead_letter (consumer_group, id) where deploy_fault;
create index dead_letter_event on stream.dead_letter (event_id, consumer_group);

-- A record that may have killed its process: how many deaths it is blamed for. By source position.
create table stream.suspect (
    consumer_group text not null,
    topic          text not null,
    partition      int not null,
    "offset"       bigint not null,
    crashes        int not null,
    at             timestamptz not null default clock_timestamp(),
    primary key (consumer_group, topic, partition, "offset")
);

-- One row a process of a group.
create table stream.worker (
    consumer_group text not null,
    worker         text not null,
    session        int not null,              -- its control session's: the process is there as long as that is
    seen_at        timestamptz not null default clock_timestamp(),  -- when it came, or last said something new
    progress       text,                      -- of the handler that last called ctx.heartbeat(progress=...)
    primary key (consumer_group, worker)
);

-- Is this session one that a process of the group keeps (control.py)? Names of sessions are cut to 63 characters.
create function stream.is_member(consumer_group text, session int) returns boolean
    stable language sql set search_path = pg_catalog
    return exists (select from pg_stat_activity a
                   where a.pid = session and a.datname = current_database()
                     and a.application_name = left('stream-' || consumer_group || '-control', 63));

alter table stream.group_state
    add paused_until       timestamptz,       -- infinity: until resumed
    add paused_at          timestamptz,
    add paused_reason      text,
    add halted_at          timestamptz,
    add halted_reason      text,
    add streak_after       bigint not null default 0,  -- dead letters up to this id were followed by a success
    add breaker_open_since timestamptz,
    add breaker_reason     text,
    add probe_at           timestamptz,       -- while open or halted: when one process may try one event
    add probe_interval     interval,
    add next_slot          timestamptz,       -- of `rate`: when the next event may start
    add most_record_bytes  int,               -- what the topics of retries and dead letters take
    add nudge_after        interval not null default '1 minute';  -- a live head overdue for so long is called again


-- What is kept in order within a group: a key of a topic, or a partition's records without one. A number, so that
-- it is the lock too; two keys that share one are held together, which is harmless. As Python's parking.lane_number.
create function stream.parked_lane(consumer_group text, topic text, key bytea, partition int) returns int
    immutable parallel safe language sql set search_path = pg_catalog
    return ('x' || encode(substr(sha256(
        convert_to(consumer_group || chr(31) || topic || chr(31), 'UTF8')
        || coalesce(key, convert_to(chr(31) || partition, 'UTF8'))), 1, 4), 'hex'))::bit(32)::int;

-- Is anything of the lane parked? Volatile, so that it sees what was committed until now, and not until the statement
-- that calls it began: claim_one.sql asks after its row is there.
create function stream.is_parked(consumer_group text, lane int) returns boolean
    volatile language plpgsql as $$
begin
    return exists (select from stream.parked p where p.consumer_group = $1 and p.lane = $2);
end $$;

-- Until the transaction's end nobody else parks, runs, releases or looks twice at these lanes. Sorted, so that two
-- calls on the same lanes cannot wait for each other.
create function stream.lock_lanes(lanes int[]) returns void
    language sql set search_path = pg_catalog, pg_temp as $$
    select pg_advisory_xact_lock(x'53540004'::int, n)
    from (select distinct n from unnest(lanes) n order by n offset 0) sorted
$$;

-- The same of those lanes that nobody else holds; returns these. Who holds one may be a handler at work.
create function stream.try_lock_lanes(lanes int[]) returns setof int
    language sql set search_path = pg_catalog, pg_temp as $$
    select n from (select distinct n from unnest(lanes) n order by n offset 0) sorted
    where pg_try_advisory_xact_lock(x'53540004'::int, n)
$$;

-- The headers of a record that failed: the original's byte for byte, and after them the error's, each once; what an
-- original had of that name is replaced. `error` is {name, text, name, text, ...} without the prefix; null texts
-- are left out.
create function stream.error_headers(names text[], vals bytea[], error text[],
                                     out header_names text[], out header_values bytea[])
    immutable language sql set search_path = pg_catalog as $$
    select array_agg(h.name order by h.n), array_agg(h.val order by h.n)
    from (
        select o.n, o.name, o.val from unnest(names, vals) with ordinality o(name, val, n)
        where o.name not like 'stream.error.%'
        union all
        select cardinality(names) + e.n, 'stream.error.' || error[e.n], convert_to(error[e.n + 1], 'UTF8')
        from generate_series(1, cardinality(error), 2) e(n)
        where error[e.n + 1] is not null
    ) h
$$;

create function stream.rfc3339(at timestamptz) returns text
    immutable language sql set search_path = pg_catalog
    return to_char(at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"');

-- The value of a copy, or null where the copy would not fit its topic: the position still says where it is.
create function stream.fitting(value bytea, key bytea, names text[], vals bytea[], most int) returns bytea
    immutable language sql set search_path = pg_catalog
    return case when octet_length(value) + coalesce(octet_length(key), 0) + octet_length(array_to_string(names, ''))
                     + pg_column_size(vals) + 16 * cardinality(names) + 200 <= most then value end;


-- The invariant of parking: a lane with rows has exactly one live head, its lowest row, which is held or has a record
-- on its way that will wake a worker. Whoever changes a lane's lowest row calls this in the same transaction, under
-- the lane's lock. A record too many is harmless (it finds the row not due, or gone); one too few is not, and is
-- what `nudge_at` is for. Returns how many records it scheduled.
create function stream.leave_live_heads(consumer_group text, lanes int[]) returns int
    language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    most   constant int := coalesce((select s.most_record_bytes from stream.group_state s
                                     where s.consumer_group = $1), 1048588);
    nudge  constant interval := coalesce((select s.nudge_after from stream.group_state s
                                          where s.consumer_group = $1), '1 minute');
    heads  stream.parked[];
begin
    with head as (
        select low.* from (select distinct n from unnest(lanes) n) l cross join lateral (
            select p.topic, p.partition, p."offset", p.event_id, p.epoch, p.held from stream.parked p
            where p.consumer_group = $1 and p.lane = l.n
            order by p.partition, p."offset", p.event_id, p.epoch limit 1) low
    ), live as (
        update stream.parked p
        set due_at = coalesce(p.due_at, clock_timestamp()), nudges = 0,
            nudge_at = greatest(p.due_at, clock_timestamp()) + nudge
        from head h
        where p.consumer_group = $1 and p.topic = h.topic and p.partition = h.partition and p."offset" = h."offset"
          and p.event_id = h.event_id and p.epoch = h.epoch and not p.held
        returning p
    )
    select array_agg(live.p) into heads from live;
    perform stream.wake(heads, most);
    return coalesce(cardinality(heads), 0);
end $$;

-- Schedules the record of each of these rows for its due time.
create function stream.wake(heads stream.parked[], most int) returns void
    language sql set search_path = pg_catalog, pg_temp as $$
    select stream.append_encoded(
        array_agg(r.consumer_group || '.retry'), array_agg(r.key), array_agg(r.event_id),
        array_agg(coalesce(r.type, '')), array_agg(r.timestamp),
        array_agg(stream.fitting(r.value, r.key, r.names, r.vals, most)), array_agg(null::jsonb),
        array_agg(r.names::text), array_agg(r.vals::text), array_agg(r.due_at - clock_timestamp()))
    from (
        select p.*, h.header_names as names, h.header_values as vals
        from unnest(heads) p cross join lateral stream.error_headers(p.header_names, p.header_values, array[
            'group', p.consumer_group, 'topic', p.topic, 'partition', p.partition::text, 'offset', p."offset"::text,
            'timestamp', stream.rfc3339(p.timestamp), 'kind', p.error_kind, 'stage', p.error_stage,
            'class', p.error_class, 'message', p.error_message, 'fingerprint', p.fingerprint,
            'attempts', p.attempts::text, 'first_failed_at', stream.rfc3339(p.first_failed_at),
            'last_failed_at', stream.rfc3339(p.last_failed_at), 'worker', p.worker]) h
        order by p.lane
    ) r
    having count(*) > 0
$$;

-- Publishes dead letters to <group>.dlq.
create function stream.publish_dead_letters(ids bigint[]) returns void
    language sql set search_path = pg_catalog, pg_temp as $$
    select stream.append_encoded(
        array_agg(r.consumer_group || '.dlq'), array_agg(r.key), array_agg(r.event_id),
        array_agg(coalesce(r.type, '')), array_agg(r.timestamp),
        array_agg(stream.fitting(r.value, r.key, r.names, r.vals, coalesce(r.most, 1048588))), array_agg(null::jsonb),
        array_agg(r.names::text), array_agg(r.vals::text))
    from (
        select d.*, h.header_names as names, h.header_values as vals, s.most_record_bytes as most
        from stream.dead_letter d
        left join stream.group_state s on s.consumer_group = d.consumer_group
        cross join lateral stream.error_headers(d.header_names, d.header_values, array[
            'group', d.consumer_group, 'topic', d.topic, 'partition', d.partition::text, 'offset', d."offset"::text,
            'timestamp', stream.rfc3339(d.timestamp), 'kind', d.kind, 'stage', d.stage,
            'class', d.error_class, 'message', d.error_message, 'stacktrace', d.error_stack,
            'fingerprint', d.fingerprint, 'attempts', d.attempts::text,
            'first_failed_at', stream.rfc3339(d.first_failed_at), 'last_failed_at', stream.rfc3339(d.last_failed_at),
            'worker', d.worker]) h
        where d.id = any (ids)
        order by d.id
    ) r
    having count(*) > 0
$$;
