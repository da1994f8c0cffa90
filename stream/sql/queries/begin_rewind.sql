-- None where another of the group is under way.
insert into stream.rewind (consumer_group, mode, who, reason, rate, gives_up_at)
values (%(group)s, %(mode)s, %(who)s, %(reason)s, %(rate)s, clock_timestamp() + %(patience_s)s * interval '1 second')
on conflict (consumer_group) where ended_at is null do nothing
returning id
