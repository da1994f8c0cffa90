-- Which of the groups' own tables (consumers/<module>.sql) are applied, and as of which content.
create table stream.group_tables (
    consumer_group text primary key,
    sha256         text not null,             -- of the file, in hex
    applied_at     timestamptz not null default clock_timestamp()
);
