-- One row per mail that the provider accepted.
create table if not exists mail (
    order_id text not null,
    kind text not null check (kind in ('confirmation', 'invoice', 'credit_note')),
    message_id text not null unique,
    sent_at timestamptz not null default clock_timestamp()
);
create index if not exists mail_order_id on mail (order_id);

-- The shop's own table, here only so that the group can start before the shop does.
create schema if not exists shop;
create table if not exists shop.customer (
    customer_id text primary key,
    email text not null
);
