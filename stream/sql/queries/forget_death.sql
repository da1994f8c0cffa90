delete from stream.ledger l using stream.dead_letter d
where d.id = %(letter)s and l.consumer_group = d.consumer_group and l.event_id = d.event_id
  and l.epoch <= d.epoch and l.outcome = 'dead'
