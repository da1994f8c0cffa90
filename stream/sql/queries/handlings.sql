-- What handlers have been at for a while, in the processes that are there.
select w.consumer_group, w.worker, w.handling from stream.worker w
where w.handling <> '[]' and stream.is_member(w.consumer_group, w.session)
