-- Begins what stream.same_transaction() asks about; and is anything of the group parked at all?
select set_config('stream.handling', 'on', true),
       exists (select from stream.parked where consumer_group = %(group)s)
