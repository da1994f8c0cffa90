-- As claim.sql, each event with its own number of tries.
insert into stream.ledger (consumer_group, event_id, epoch, attempts, worker)
select %(group)s, id, %(epoch)s, attempts, %(worker)s
from unnest(%(ids)s::uuid[], %(attempts)s::int[]) c (id, attempts), set_config('stream.handling', 'on', true)
order by id
on conflict do nothing
returning event_id
