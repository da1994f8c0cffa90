-- How far groups are behind, now and then, and what became of their topics' partitions.

-- One look at all partitions of a group, taken by one of its processes (lookout.py): what rates and verdicts are made of.
create table stream.sample (
    consumer_group text not null,
    at             timestamptz not null,      -- when the look began
    topics         text[] not null,           -- of each partition its topic, number, committed offset and end
    partitions     int[] not null,
    committed      bigint[] not null,         -- null where nothing is committed
    ends           bigint[] not null,
    primary key (consumer_group, at)
);
alter table stream.group_state
    add sampled_at   timestamptz,
    add history_ends jsonb not null default '{}';  -- topic -> partition -> end of the log at the group's first start

-- Handlers of this process that have been at work for a while: [{topic, partition, offset, key, event_id, since}].
alter table stream.worker add handling jsonb not null default '[]';

-- Partitions that a topic got after a group had begun to read it: since then a key's events may be in two of them.
create table stream.grown_partition (
    consumer_group text not null,
    topic          text not null,
    partition      int not null,
    at             timestamptz not null default now(),  -- when the group first started on it
    primary key (consumer_group, topic, partition)
);
