-- Who reads what now.
select a.consumer_group, a.topic, a.partition, a.worker from stream.assignment a
join stream.worker w on w.consumer_group = a.consumer_group and w.worker = a.worker
where a.released_at is null and stream.is_member(w.consumer_group, w.session)
