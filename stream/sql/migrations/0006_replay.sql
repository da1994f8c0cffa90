-- What operators ask of dead letters.

-- All that a list of groups shows stands in the index: letters are large, and are not read for it.
drop index stream.dead_letter_open;
create index dead_letter_open on stream.dead_letter (consumer_group, fingerprint, id)
    include (first_failed_at, last_failed_at, stage, error_class) where status = 'open';
create index dead_letter_key on stream.dead_letter using hash (key);  -- keys are others': of any length

-- The letters that fit everything that is not null. `error_class` with or without its module. One simple statement
-- and no setting, so that it is inlined, and what is null costs nothing.
create function stream.letters(
    status text, consumer_group text, error_class text, stage text, since timestamptz, until timestamptz,
    key bytea, fingerprint text, ids bigint[], up_to bigint
) returns setof stream.dead_letter
    stable language sql as $$
    select * from stream.dead_letter d
    where ($1 is null or d.status = $1)
      and ($2 is null or d.consumer_group = $2)
      and ($3 is null or d.error_class = $3 or right(d.error_class, length($3) + 1) = '.' || $3)
      and ($4 is null or d.stage = $4)
      and ($5 is null or d.last_failed_at >= $5)
      and ($6 is null or d.last_failed_at < $6)
      and ($7 is null or d.key = $7)
      and ($8 is null or d.fingerprint = $8)
      and ($9 is null or d.id = any ($9))
      and ($10 is null or d.id <= $10)
$$;
