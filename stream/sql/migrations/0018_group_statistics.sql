-- A group's parked rows come and go within minutes, and statistics know nothing of a group that had none when they were
-- made: PostgreSQL then takes it to have one row, and any index that begins with the group for as good as the one that
-- is meant. Without statistics it takes each group to have a two-hundredth of the rows.
-- Only the change of type forgets what was collected. It wants the table for itself for a moment: where it does not get
-- it, or somebody's view depends on the column, statistics stay, and go on being collected.
do $$
begin
    perform set_config('lock_timeout', '3s', true);
    if exists (select from pg_stats where schemaname = 'stream' and tablename = 'parked' and attname = 'consumer_group') then
        alter table stream.parked alter column consumer_group type text;
    end if;
    alter table stream.parked alter column consumer_group set statistics 0;
exception when feature_not_supported or lock_not_available then
    null;
end $$;
