-- What people could ask of events that the ledger has forgotten.
delete from stream.waited w
where w.left_at < %(before)s and w.consumer_group = any (%(groups)s)
