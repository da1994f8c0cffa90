-- History run again on purpose: which records belong to which epoch.
--
-- A record's epoch is that of the newest range of its group that holds its position, and 0 where none does. A group's
-- ledger has a row of an event for each epoch it was applied in, and one of epoch 0 for whatever it was applied in: an
-- event without one has never been applied, and is then applied as if there were no epoch (claim_reapplied.sql).
create table stream.reapply (
    id             bigint generated always as identity primary key,
    consumer_group text not null,
    epoch          int not null check (epoch > 0),
    topic          text not null,
    partition      int not null,
    from_offset    bigint not null check (from_offset >= 0),
    to_offset      bigint not null check (to_offset > from_offset),  -- the log's end at that time
    old_offset     bigint not null,                                  -- where the group stood
    status         text not null default 'planned' check (status in ('planned', 'done')),  -- done: offsets were moved
    reason         text,
    who            text not null,
    at             timestamptz not null default clock_timestamp(),
    unique (consumer_group, epoch, topic, partition, from_offset)
);

create function stream.epoch_of(consumer_group text, topic text, partition int, "offset" bigint) returns int
    stable language sql set search_path = pg_catalog
    return coalesce((select max(r.epoch) from stream.reapply r
                     where r.consumer_group = $1 and r.topic = $2 and r.partition = $3
                       and $4 >= r.from_offset and $4 < r.to_offset), 0);

-- What was parked in a range that is run again. It is read again in its turn, behind the earlier events of its key; here
-- it is kept in case it is not, because the offset is moved on after all.
create table stream.reapply_parked (like stream.parked including defaults);
alter table stream.reapply_parked add primary key (consumer_group, topic, partition, "offset", event_id);

alter table stream.group_state add last_epoch int not null default 0;  -- never given twice, whatever was undone
