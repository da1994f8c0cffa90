-- The tables of the group beside this file; `stream migrate` applies it each time, so it must be safe to repeat.
create table if not exists receipt (
    order_id   text primary key,
    customer   text not null,
    total      numeric(18, 2) not null,
    written_at timestamptz not null default now()
);
