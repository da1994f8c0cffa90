-- What is on hand: 1,000 when a SKU is first seen, plus its movements. Below zero, more was sold than there is.
create table if not exists stock_level (
    sku text primary key,
    on_hand bigint not null,
    reorder_level bigint not null default 100
);

-- Why: one row per event and SKU, replaced when the event is applied again.
create table if not exists stock_movement (
    event_id uuid not null,
    order_id text not null,
    sku text not null,
    quantity bigint not null,
    primary key (event_id, sku)
);
create index if not exists stock_movement_order_id on stock_movement (order_id);
