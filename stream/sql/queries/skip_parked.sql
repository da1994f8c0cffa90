-- An event that a person gave up before it was dead: as if its handler had skipped it, in its epoch.
insert into stream.ledger (consumer_group, event_id, epoch, outcome, attempts, worker, reason)
select %(group)s, %(event_id)s, epoch, 'skipped', %(attempts)s, %(who)s, %(reason)s
from (values (0), (stream.epoch_of(%(group)s, %(topic)s, %(partition)s, %(offset)s))) e (epoch)
on conflict do nothing
