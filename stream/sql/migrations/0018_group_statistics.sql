-- A group's parked rows come and go within minutes, and statistics know nothing of a group that had none when they were
-- made: PostgreSQL then takes it to have one row, and any index that begins with the group for as good as the one that
-- is meant. Without statistics it takes each group to have a two-hundredth of the rows. (The first statement forgets
-- what was collected; the second collects no more.)
alter table stream.parked alter column consumer_group type text;
alter table stream.parked alter column consumer_group set statistics 0;
