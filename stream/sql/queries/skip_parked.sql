-- An event that a person gave up before it was dead: as if its handler had skipped it.
insert into stream.ledger (consumer_group, event_id, epoch, outcome, attempts, worker, reason)
values (%(group)s, %(event_id)s, %(epoch)s, 'skipped', %(attempts)s, %(who)s, %(reason)s)
on conflict do nothing
