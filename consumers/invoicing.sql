-- One row per document. The PDF stands in the row, so that number and document are written once together.
create table if not exists invoice (
    order_id text not null,
    kind text not null check (kind in ('invoice', 'credit_note')),
    number bigint not null,
    total_minor bigint not null,
    currency text not null,
    issued_at timestamptz not null,
    document bytea not null,
    primary key (order_id, kind),
    unique (kind, number)
);
alter table invoice alter column document set storage external;  -- a PDF is compressed already

-- The last number given. A sequence would leave a gap at every rollback; these rows roll back too.
create table if not exists invoice_counter (
    kind text primary key,
    last bigint not null
);
insert into invoice_counter (kind, last) values ('credit_note', 0), ('invoice', 0) on conflict do nothing;
