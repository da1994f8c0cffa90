-- The demo's shop: what an application has of its own, in a schema of its own.
create schema if not exists shop;

create table if not exists shop.customer (
    customer_id text primary key,
    email text not null
);

-- Codes that are no goods: charged, but nothing leaves the shelf.
create table if not exists shop.service_code (
    code text primary key,
    meaning text not null
);
insert into shop.service_code (code, meaning) values
    ('POST', 'postage'),
    ('DOT', 'postage of web orders'),
    ('D', 'discount'),
    ('M', 'manual entry'),
    ('S', 'samples'),
    ('PADS', 'pads to match cushions'),
    ('CRUK', 'commission for charity'),
    ('AMAZONFEE', 'marketplace fee'),
    ('BANK CHARGES', 'bank charges'),
    ('B', 'bad debt')
on conflict do nothing;

create table if not exists shop.customer_order (
    order_id text not null,
    kind text not null check (kind in ('placed', 'returned', 'adjusted')),
    status text not null check (status in ('placed', 'paid', 'shipped', 'cancelled', 'returned', 'adjusted')),
    customer_id text references shop.customer,
    country text,
    currency text not null,
    ordered_at timestamptz not null,
    primary key (order_id, kind)
);

create table if not exists shop.order_line (
    order_id text not null,
    kind text not null,
    line int not null,
    sku text not null,
    description text,
    quantity int not null,
    unit_price numeric(18, 4) not null,
    service boolean not null,
    primary key (order_id, kind, line),
    foreign key (order_id, kind) references shop.customer_order
);
