-- One process of the group looks; the next may once this long has passed.
update stream.group_state
set sampled_at = clock_timestamp()
where consumer_group = %(group)s
  and (sampled_at is null or sampled_at <= clock_timestamp() - %(every_s)s * interval '1 second')
returning sampled_at
