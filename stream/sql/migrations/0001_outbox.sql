-- The producing half: the outbox, what waits for its time, what cannot be published, and the one door in.

create table stream.event_type (
    type            text primary key,
    topic           text not null,
    required_fields jsonb not null  -- field -> the jsonb_typeof names it may have; filled by `stream migrate`
);

-- The number of a key's append lock; its highest byte decides the shard, so that a lock held names its shard.
create function stream.lock_number(key bytea) returns int
    immutable parallel safe language sql  -- one expression, so that it is inlined
    return ('x' || encode(substr(sha256(coalesce(key, ''::bytea)), 1, 4), 'hex'))::bit(32)::int;

-- Whether every client can hold the time: PostgreSQL's own go on to infinity.
create function stream.is_datable("time" timestamptz) returns boolean
    immutable parallel safe language sql
    return "time" >= '0001-01-02 00:00:00+00' and "time" < '9999-12-31 00:00:00+00';

create table stream.outbox (
    id            bigint generated always as identity (cache 1),
    shard         smallint generated always as ((get_byte(sha256(coalesce(key, ''::bytea)), 0) % 64)::smallint) stored,
    topic         text not null,
    key           bytea,
    event_id      uuid not null,
    type          text not null,
    "time"        timestamptz not null check (stream.is_datable("time")),
    payload       bytea,   -- wire bytes; null with data null is a tombstone
    data          jsonb,   -- instead of payload, from plain SQL: the relay encodes it
    header_names  text[],  -- the event's own headers; a list that holds ce_id is published just as it is
    header_values bytea[],
    created_at    timestamptz not null default clock_timestamp(),
    primary key (topic, shard, id)  -- the only index; rows are deleted once acknowledged
) with (
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000, autovacuum_vacuum_cost_delay = 0,
    autovacuum_vacuum_insert_scale_factor = 0, autovacuum_vacuum_insert_threshold = 200000,
    vacuum_truncate = off,
    toast.autovacuum_vacuum_scale_factor = 0, toast.autovacuum_vacuum_threshold = 20000,
    toast.autovacuum_vacuum_cost_delay = 0
);
alter table stream.outbox alter payload set storage external;  -- Avro bytes: not worth compressing

create table stream.outbox_rejected (
    like stream.outbox,
    reason      text not null,
    error       text not null,
    rejected_at timestamptz not null default clock_timestamp(),
    primary key (topic, shard, id)
);
-- Asked once for every row read while anything is rejected: one key may have many thousand rows here.
create index outbox_rejected_key on stream.outbox_rejected using hash (key);

create table stream.scheduled (
    id            bigint generated always as identity (cache 1) primary key,
    shard         smallint generated always as ((get_byte(sha256(coalesce(key, ''::bytea)), 0) % 64)::smallint) stored,
    due_at        timestamptz not null,
    debounce_key  text,
    first_at      timestamptz,
    max_wait_at   timestamptz,
    topic         text not null,
    key           bytea,
    event_id      uuid not null,
    type          text not null,
    "time"        timestamptz not null check (stream.is_datable("time")),
    payload       bytea,
    data          jsonb,
    header_names  text[],
    header_values bytea[],
    created_at    timestamptz not null default clock_timestamp()
);
create index scheduled_due on stream.scheduled (due_at, id);
create unique index scheduled_debounce on stream.scheduled (topic, key, debounce_key) where debounce_key is not null;

-- Topics whose rows the relay cannot publish now, by its own account.
create table stream.sick_topic (topic text primary key, reason text not null, since timestamptz not null);


create function stream.uuidv7() returns uuid
    volatile parallel safe language sql
    return encode(
        set_bit(set_bit(
            overlay(uuid_send(gen_random_uuid())
                    placing substring(int8send((extract(epoch from clock_timestamp()) * 1000)::bigint) from 3)
                    from 1 for 6),
            52, 1), 53, 1),
        'hex')::uuid;

-- The event id of a caller's own id: UUIDv8 of sha256(type, 0x1f, id), as Python's named_event_id.
create function stream.event_id(type text, id text) returns uuid
    immutable parallel safe language sql
    return (select encode(set_byte(set_byte(d, 6, get_byte(d, 6) & 15 | 128), 8, get_byte(d, 8) & 63 | 128), 'hex')::uuid
            from substr(sha256(convert_to($1 || chr(31) || $2, 'UTF8')), 1, 16) d);


-- Locks the keys, guarding the lock table that everybody shares: at most a quarter of it for one transaction.
-- The count is kept in a transaction-local setting (it falls with a savepoint, as the locks do) and may be too
-- high, since a key locked twice counts twice; only past the limit is pg_locks asked for the true one.
create function stream.lock_keys(keys bytea[]) returns void
    language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    append_class constant int := x'53540001'::int;
    numbers int[];
    held    int;
    most    constant int := current_setting('max_locks_per_transaction')::int
        * (current_setting('max_connections')::int + current_setting('max_prepared_transactions')::int) / 4;
begin
    if cardinality(keys) = 1 then
        numbers := array[stream.lock_number(keys[1])];
    else
        numbers := array(select distinct stream.lock_number(k) from unnest(keys) k order by 1);
    end if;
    held := coalesce(nullif(current_setting('stream.append_locks', true), ''), '0')::int + cardinality(numbers);
    if held > most then
        select count(*) into held from (
            select unnest(numbers)
            union
            select objid::bigint::bit(32)::int from pg_locks
            where locktype = 'advisory' and pid = pg_backend_pid() and classid = append_class and objsubid = 2
        ) of_this_transaction;
        if held > most then
            raise exception 'stream.append: this transaction has events of % keys; this server allows % in one transaction',
                held, most
                using errcode = 'configuration_limit_exceeded',
                hint = 'Append in several transactions, or raise max_locks_per_transaction.';
        end if;
    end if;
    perform set_config('stream.append_locks', held::text, true);
    -- Sorted by lock number, so that two calls on the same keys cannot wait for each other. Rows without a key
    -- share their lock: they have no order, but every id is taken under a lock of this class (see floors.py).
    perform case when n = stream.lock_number(null)
                      and not exists (select from unnest(keys) k where k is not null and stream.lock_number(k) = n)
                 then pg_advisory_xact_lock_shared(append_class, n)
                 else pg_advisory_xact_lock(append_class, n) end
    from (select unnest(numbers) n offset 0) sorted;
end $$;


-- Beneath every door: takes what is encoded already, locks, and inserts. One element an event in each array;
-- `header_names` and `header_values` hold an array literal each, or null.
-- Invariant: the key's lock first, the id then. A second transaction of the key waits for the first one's end,
-- so id order is commit order per key. And a row is never due before it was written, under that lock: due times
-- have a floor too (promotion.py).
create function stream.append_encoded(
    topics text[], keys bytea[], event_ids uuid[], types text[], times timestamptz[],
    payloads bytea[], datas jsonb[], header_names text[], header_values text[],
    delays interval[] default null, debounces text[] default null, max_waits interval[] default null
) returns void
    language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    perform stream.lock_keys(keys);

    if delays is null then
        insert into stream.outbox (topic, key, event_id, type, "time", payload, data, header_names, header_values)
        select e.topic, e.key, e.event_id, e.type, coalesce(e."time", clock_timestamp()), e.payload, e.data,
               e.names::text[], e.vals::bytea[]
        from unnest(topics, keys, event_ids, types, times, payloads, datas, header_names, header_values)
             with ordinality e(topic, key, event_id, type, "time", payload, data, names, vals, n)
        order by e.n;
        return;
    end if;

    insert into stream.outbox (topic, key, event_id, type, "time", payload, data, header_names, header_values)
    select e.topic, e.key, e.event_id, e.type, coalesce(e."time", clock_timestamp()), e.payload, e.data,
           e.names::text[], e.vals::bytea[]
    from unnest(topics, keys, event_ids, types, times, payloads, datas, header_names, header_values, delays)
         with ordinality e(topic, key, event_id, type, "time", payload, data, names, vals, delay, n)
    where e.delay is null
    order by e.n;

    insert into stream.scheduled (due_at, topic, key, event_id, type, "time", payload, data, header_names, header_values)
    select clock_timestamp() + greatest(e.delay, interval '0'), e.topic, e.key, e.event_id, e.type, coalesce(e."time", clock_timestamp()),
           e.payload, e.data, e.names::text[], e.vals::bytea[]
    from unnest(topics, keys, event_ids, types, times, payloads, datas, header_names, header_values, delays, debounces)
         with ordinality e(topic, key, event_id, type, "time", payload, data, names, vals, delay, debounce, n)
    where e.delay is not null and e.debounce is null
    order by e.n;

    -- Debounce: one row a key, replaced under the key's lock; its due time is the quiet time, at most its maximum
    -- wait since the first. Whoever promotes it takes the same lock, so it never sees a half replaced row.
    insert into stream.scheduled as s (due_at, debounce_key, first_at, max_wait_at,
                                       topic, key, event_id, type, "time", payload, data, header_names, header_values)
    select now_ + greatest(least(e.delay, e.max_wait), interval '0'), e.debounce, now_, now_ + e.max_wait,
           e.topic, e.key, e.event_id, e.type, coalesce(e."time", now_), e.payload, e.data,
           e.names::text[], e.vals::bytea[]
    from (select distinct on (u.topic, u.key, u.debounce) u.*
          from unnest(topics, keys, event_ids, types, times, payloads, datas, header_names, header_values,
                      delays, debounces, max_waits)
               with ordinality u(topic, key, event_id, type, "time", payload, data, names, vals,
                                 delay, debounce, max_wait, n)
          where u.debounce is not null
          order by u.topic, u.key, u.debounce, u.n desc) e,
         clock_timestamp() now_
    on conflict (topic, key, debounce_key) where debounce_key is not null do update
    set due_at = least(excluded.due_at, s.max_wait_at), event_id = excluded.event_id, type = excluded.type,
        "time" = excluded."time", payload = excluded.payload, data = excluded.data,
        header_names = excluded.header_names, header_values = excluded.header_values;
end $$;


-- The door for plain SQL, several events at once: [{"type": ..., "key": ..., "data": {...}}, ...]. Checks what can
-- be checked without the schemas, in the caller's transaction; the relay encodes.
create function stream.append_many(events jsonb) returns setof uuid
    language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    names constant text[] := '{type,key,data,id,time,headers,delay,debounce,max_wait}';
    event jsonb;
    known stream.event_type;
    bad   text;
    topics text[]; keys bytea[]; event_ids uuid[]; types text[]; times timestamptz[]; datas jsonb[];
    header_names text[]; header_values text[]; delays interval[]; debounces text[]; max_waits interval[];
begin
    if jsonb_typeof(events) is distinct from 'array' then
        raise exception 'stream.append_many: events: expected a JSON array, got %', coalesce(jsonb_typeof(events), 'null')
            using errcode = 'invalid_parameter_value';
    end if;
    for event in select jsonb_array_elements(events) loop
        if jsonb_typeof(event) <> 'object' then
            raise exception 'stream.append_many: expected an object an event, got %', jsonb_typeof(event)
                using errcode = 'invalid_parameter_value';
        end if;
        select k into bad from jsonb_object_keys(event) k where k <> all (names) limit 1;
        if bad is not null then
            raise exception 'stream.append: unknown argument "%"; known are %', bad, array_to_string(names, ', ')
                using errcode = 'invalid_parameter_value';
        end if;
        event := (select coalesce(jsonb_object_agg(f.key, f.value), '{}') from jsonb_each(event) f
                  where f.value <> 'null' or f.key = 'data');
        select * into known from stream.event_type t where t.type = event ->> 'type';
        if not found then
            raise exception 'stream.append: unknown event type "%"', coalesce(event ->> 'type', '(none)')
                using errcode = 'invalid_parameter_value',
                hint = 'Known are: ' || coalesce((select string_agg(t.type, ', ' order by t.type) from stream.event_type t),
                                                 'none; run stream migrate');
        end if;
        if jsonb_typeof(event -> 'key') is distinct from 'string'
           or octet_length(event ->> 'key') not between 1 and 1024 then
            raise exception 'stream.append: %.key: expected text of 1 to 1024 bytes, got %', known.type,
                case when jsonb_typeof(event -> 'key') = 'string' then octet_length(event ->> 'key') || ' bytes'
                     else coalesce(jsonb_typeof(event -> 'key'), 'nothing') end
                using errcode = 'invalid_parameter_value';
        end if;
        perform stream.check_data(known, event -> 'data', coalesce(octet_length((event -> 'headers')::text), 0));
        perform stream.check_options(known.type, event);

        topics := topics || known.topic;
        keys := keys || convert_to(event ->> 'key', 'UTF8');
        event_ids := event_ids
            || case when event ? 'id' then stream.event_id(known.type, event ->> 'id') else stream.uuidv7() end;
        types := types || known.type;
        times := times || (event ->> 'time')::timestamptz;
        datas := datas || array[event -> 'data'];
        header_names := header_names || (select array_agg(h.key order by h.key)::text from jsonb_each_text(event -> 'headers') h);
        header_values := header_values
            || (select array_agg(convert_to(h.value, 'UTF8') order by h.key)::text from jsonb_each_text(event -> 'headers') h);
        delays := delays || (event ->> 'delay')::interval;
        debounces := debounces || (event ->> 'debounce');
        max_waits := max_waits || (event ->> 'max_wait')::interval;
    end loop;
    if topics is null then
        return;
    end if;
    perform stream.append_encoded(topics, keys, event_ids, types, times, array_fill(null::bytea, array[cardinality(topics)]),
                                  datas, header_names, header_values,
                                  case when array_remove(delays, null) <> '{}' then delays end, debounces, max_waits);
    return query select unnest(event_ids);
end $$;


create function stream.append(
    type text, key text, data jsonb, id text default null, "time" timestamptz default null, headers jsonb default null,
    delay interval default null, debounce text default null, max_wait interval default null
) returns uuid
    volatile language sql
    return (select stream.append_many(jsonb_build_array(jsonb_build_object(
        'type', $1, 'key', $2, 'data', $3, 'id', $4, 'time', $5, 'headers', $6, 'delay', $7, 'debounce', $8, 'max_wait', $9))));


create function stream.check_data(known stream.event_type, data jsonb, beside int) returns void
    language plpgsql immutable set search_path = pg_catalog, pg_temp as $$
declare
    most constant int := 900000;
    field text;
    kinds jsonb;
    got   text;
begin
    if jsonb_typeof(data) is distinct from 'object' then
        raise exception 'stream.append: %.data: expected an object, got %', known.type, coalesce(jsonb_typeof(data), 'null')
            using errcode = 'invalid_parameter_value';
    end if;
    for field, kinds in select * from jsonb_each(known.required_fields) loop
        got := coalesce(jsonb_typeof(data -> field), 'nothing');
        if not kinds ? got then
            raise exception 'stream.append: %.%: expected %, got %', known.type, field,
                (select string_agg(k, ' or ') from jsonb_array_elements_text(kinds) k), got
                using errcode = 'invalid_parameter_value';
        end if;
    end loop;
    if octet_length(data::text) + beside > most then
        raise exception 'stream.append: %.data: expected at most % bytes with its headers, got %',
            known.type, most, octet_length(data::text) + beside
            using errcode = 'invalid_parameter_value';
    end if;
end $$;


create function stream.check_options(type text, event jsonb) returns void
    language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
    bad text;
begin
    if event ? 'headers' then
        if jsonb_typeof(event -> 'headers') <> 'object' then
            raise exception 'stream.append: %.headers: expected an object, got %', type, jsonb_typeof(event -> 'headers')
                using errcode = 'invalid_parameter_value';
        end if;
        select h.key into bad from jsonb_each(event -> 'headers') h
        where jsonb_typeof(h.value) <> 'string' or h.key like 'ce\_%' or h.key = 'content-type' or h.key like 'stream.%'
        limit 1;
        if bad is not null then
            raise exception 'stream.append: %.headers.%: expected text under a name that is not ce_*, stream.* or content-type',
                type, bad using errcode = 'invalid_parameter_value';
        end if;
    end if;
    if event ? 'time' and not stream.is_datable((event ->> 'time')::timestamptz) then
        raise exception 'stream.append: %.time: expected a time in the years 1 to 9999, got %', type, event ->> 'time'
            using errcode = 'invalid_parameter_value';
    end if;
    if event ? 'delay' and (event ->> 'delay')::interval > interval '100 years' then
        raise exception 'stream.append: %.delay: expected at most 100 years, got %', type, event ->> 'delay'
            using errcode = 'invalid_parameter_value';
    end if;
    if event ? 'delay' and (event ->> 'delay')::interval < interval '0' then
        raise exception 'stream.append: %.delay: expected no time in the past, got %', type, event ->> 'delay'
            using errcode = 'invalid_parameter_value';
    end if;
    if event ? 'debounce' and (not event ? 'delay' or octet_length(event ->> 'debounce') not between 1 and 256) then
        raise exception 'stream.append: %.debounce: expected text of 1 to 256 bytes beside a delay', type
            using errcode = 'invalid_parameter_value';
    end if;
    if event ? 'max_wait' and (not event ? 'debounce' or (event ->> 'max_wait')::interval < interval '0') then
        raise exception 'stream.append: %.max_wait: expected no negative time, beside debounce', type
            using errcode = 'invalid_parameter_value';
    end if;
end $$;


-- Due rows of the owned shards into the outbox, in (due_at, id) order, those whose key's append lock is free.
-- `avoid` are locks met held a moment ago: a busy key with many due rows must not fill every batch. `floor`, in
-- microseconds since 1970: no row is due before it (see promotion.py). now() and not clock_timestamp(), which no
-- index can be asked for. The caller's transaction is this one statement.
create function stream.promote(owned smallint[], avoid int[], floor bigint, batch int,
                               out moved int, out free int[], out taken int[])
    language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    append_class constant int := x'53540001'::int;
    wanted int[];
begin
    wanted := array(
        select distinct stream.lock_number(d.key)
        from (select s.key from stream.scheduled s
              where s.due_at <= now() and s.due_at >= to_timestamp(floor / 1000000.0) and s.shard = any (owned)
                and (avoid = '{}' or stream.lock_number(s.key) <> all (avoid))
              order by s.due_at, s.id limit batch) d
        order by 1);
    free := array(select n from unnest(wanted) n where pg_try_advisory_xact_lock(append_class, n));
    taken := array(select unnest(wanted) except select unnest(free));
    moved := stream.move_due(owned, free, floor, batch);
end $$;

-- The same for one key that has been overdue for long: its lock is waited for, alone, far below deadlock_timeout.
create function stream.promote_waiting(owned smallint[], number int, floor bigint, batch int) returns int
    language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    perform set_config('lock_timeout', '100ms', true);
    perform pg_advisory_xact_lock(x'53540001'::int, number);
    return stream.move_due(owned, array[number], floor, batch);
end $$;

-- The caller holds the locks. A statement of its own, so that it sees what their last holders committed.
create function stream.move_due(owned smallint[], locked int[], floor bigint, batch int) returns int
    language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    moved int;
begin
    if locked = '{}' then
        return 0;
    end if;
    with due as (
        select s.id from stream.scheduled s
        where s.due_at <= now() and s.due_at >= to_timestamp(floor / 1000000.0)
          and s.shard = any (owned) and stream.lock_number(s.key) = any (locked)
        order by s.due_at, s.id limit batch
    ), taken as (
        delete from stream.scheduled s using due where s.id = due.id returning s.*
    )
    insert into stream.outbox (topic, key, event_id, type, "time", payload, data, header_names, header_values, created_at)
    select t.topic, t.key, t.event_id, t.type, t."time", t.payload, t.data, t.header_names, t.header_values, t.created_at
    from taken t order by t.due_at, t.id;
    get diagnostics moved = row_count;
    return moved;
end $$;


-- A key's rejected and still unpublished rows again, in their old order with fresh ids.
create function stream.retry_rejected(topic text, key bytea) returns int
    language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    moved int;
begin
    perform stream.lock_keys(array[$2]);
    with rejected as (
        delete from stream.outbox_rejected r where r.topic = $1 and r.key = $2 returning r.*
    ), unpublished as (
        delete from stream.outbox o
        where o.topic = $1 and o.key = $2 and o.shard = (get_byte(sha256($2), 0) % 64)::smallint returning o.*
    ), again as (
        select r.id, r.topic, r.key, r.event_id, r.type, r."time", r.payload, r.data, r.header_names, r.header_values,
               r.created_at from rejected r
        union all
        select u.id, u.topic, u.key, u.event_id, u.type, u."time", u.payload, u.data, u.header_names, u.header_values,
               u.created_at from unpublished u
    )
    insert into stream.outbox (topic, key, event_id, type, "time", payload, data, header_names, header_values, created_at)
    select a.topic, a.key, a.event_id, a.type, a."time", a.payload, a.data, a.header_names, a.header_values, a.created_at
    from again a order by a.id;
    get diagnostics moved = row_count;
    return moved;
end $$;


-- An application's role needs `usage` on the schema and calls append and append_many, which check everything. These
-- take bytes as they are: they are for Outbox.append, whose role is granted them by name.
revoke execute on function stream.lock_keys, stream.append_encoded from public;
