-- Rewinds: a group's offsets are moved on purpose, while its members make way.
--
-- Who writes what:
--   rewind, rewind_move  the command `stream rewind`; it holds an advisory lock on the rewind's number meanwhile. A
--                        killed command leaves its row open, without the lock: members do not wait for it.
--   worker.made_way_for  each process, once it has left the broker's group for that rewind.
--   rewind_move.passed   the group's processes, while a rate holds.

create table stream.rewind (
    id             int generated always as identity primary key,
    consumer_group text not null,
    mode           text not null check (mode in ('repair', 'reapply')),
    who            text not null,             -- user@host of the command
    reason         text,
    asked_at       timestamptz not null default clock_timestamp(),
    gives_up_at    timestamptz not null,      -- members wait no longer, whatever became of the command
    undo           text,                      -- where the command saved the old offsets, in Kafka's CSV
    rate           float8,                    -- most events a second until what runs again is passed
    passed_at      timestamptz,               -- when it was
    ended_at       timestamptz,
    epoch          int,                       -- of a reapply
    settled_at     timestamptz,               -- when it was known what became of it, and that was made true (reapplies.py)
    moved          boolean,
    result         text check (result in ('moved', 'refused', 'failed', 'cut off'))
);
create unique index rewind_under_way on stream.rewind (consumer_group) where ended_at is null;
create index rewind_paced on stream.rewind (consumer_group, id) where rate is not null and passed_at is null;

create table stream.rewind_move (
    rewind     int not null references stream.rewind on delete cascade,
    topic      text not null,
    partition  int not null,
    old_offset bigint,                        -- null: nothing was committed
    new_offset bigint not null,
    upto       bigint not null,               -- the end of what runs again
    passed     boolean not null default false,
    primary key (rewind, topic, partition)
);

create index rewind_unsettled on stream.rewind (consumer_group) where settled_at is null;

alter table stream.worker add made_way_for int;

-- Is the command of this rewind there?
create function stream.is_rewinding(rewind int) returns boolean
    stable language sql set search_path = pg_catalog
    return exists (select from pg_locks l join pg_database d on d.oid = l.database
                   where l.locktype = 'advisory' and l.classid::bigint = x'53540016'::bigint
                     and l.objid::bigint = $1 and l.objsubid = 2 and l.granted and d.datname = current_database());

-- The rewind that the group's members make way for now; null: they are to run.
create function stream.recess(consumer_group text) returns int
    stable language sql
    return (select r.id from stream.rewind r
            where r.consumer_group = $1 and r.ended_at is null and clock_timestamp() < r.gives_up_at
              and stream.is_rewinding(r.id));
