-- What people changed by hand, and why.
create table stream.operator_action (
    id         bigint generated always as identity primary key,
    at         timestamptz not null default clock_timestamp(),
    who        text not null,                 -- user@host of the command
    action     text not null,                 -- 'outbox discard'
    target     text not null,                 -- what it acted on, as its command names it
    parameters jsonb not null default '{}',
    result     text not null,
    reason     text
);
