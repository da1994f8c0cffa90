-- The effect of every benchmark's handler. No unique key: a second effect would show.
create table if not exists effect (
    id        bigint generated always as identity,
    order_id  text not null,
    placed_at timestamptz not null,
    lines     int not null,
    items     int not null
);
