select event_id from stream.outbox where event_id = any (%(ids)s)
union
select event_id from stream.scheduled where event_id = any (%(ids)s)
