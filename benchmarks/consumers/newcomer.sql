-- Its effects, apart from those of the group that is measured.
create table if not exists newcomer_effect (
    order_id  text not null,
    placed_at timestamptz not null,
    lines     int not null,
    items     int not null
);
