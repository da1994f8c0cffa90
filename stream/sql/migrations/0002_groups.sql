-- The consuming half: what was applied, where groups began and who reads what.

-- One row for every event a group applied, written in the transaction of its effects: why effects happen once.
create table stream.ledger (
    consumer_group text not null,
    event_id       uuid not null,
    epoch          int not null default 0,  -- above 0: a deliberate second run of history
    outcome        text not null default 'done' check (outcome in ('done', 'skipped', 'dead')),
    attempts       int not null,
    at             timestamptz not null default now(),
    worker         text not null,
    reason         text,
    primary key (consumer_group, event_id, epoch)
) with (autovacuum_vacuum_insert_scale_factor = 0, autovacuum_vacuum_insert_threshold = 500000);
create index ledger_at on stream.ledger (at);  -- pruning goes by time: ids from elsewhere are in no order

create table stream.group_state (
    consumer_group       text primary key,
    start_policy         text not null,
    first_started_at     timestamptz not null default now(),
    start_offsets        jsonb not null default '{}',  -- topic -> partition -> offset, of the first start
    partitions_seen      jsonb not null default '{}',  -- topic -> partitions this group has started on
    topic_ids            jsonb not null default '{}',  -- topic -> the cluster's id when it was first met
    ledger_pruned_before timestamptz                   -- older ledger rows are gone
);

-- Records that retention took before the group read them: [from_offset, to_offset).
create table stream.gap (
    consumer_group text not null,
    topic          text not null,
    partition      int not null,
    from_offset    bigint not null,
    to_offset      bigint not null,
    at             timestamptz not null default now(),
    primary key (consumer_group, topic, partition, from_offset)
);

-- Who reads what. An unreleased row whose worker is gone: its last owner died.
create table stream.assignment (
    consumer_group text not null,
    topic          text not null,
    partition      int not null,
    worker         text not null,
    assigned_at    timestamptz not null default now(),
    released_at    timestamptz,
    primary key (consumer_group, topic, partition)
);

-- Raises ST001 where a handler ended the transaction the engine began: a setting that is local to a transaction
-- is gone after a commit, and back at its old value after a rollback.
create function stream.same_transaction() returns void
    language plpgsql as $$
begin
    if current_setting('stream.handling', true) is distinct from 'on' then
        raise exception 'a handler ended its transaction' using errcode = 'ST001';
    end if;
end $$;
