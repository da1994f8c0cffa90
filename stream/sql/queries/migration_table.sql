create table if not exists stream.migration
    (number int primary key, name text not null, at timestamptz not null default now())
