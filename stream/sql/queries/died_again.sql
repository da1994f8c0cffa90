-- Letters younger than a replay, of events that were replayed before.
select consumer_group, event_id, epoch from stream.dead_letter where id > %(up_to)s and replays > 0
