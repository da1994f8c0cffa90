-- Under its lane's lock: what is to be known of a letter before it is acted on.
select d.status,
       (select e.outcome from stream.ledger e
        where e.consumer_group = d.consumer_group and e.event_id = d.event_id and e.epoch = d.epoch),
       stream.epoch_of(d.consumer_group, d.topic, d.partition, d."offset")
from stream.dead_letter d
where d.id = %(letter)s
for update of d
