-- Who holds append locks in this database, and of which shards (see floors.py).
select distinct virtualtransaction, (((objid::bigint >> 24) & 255) %% 64)::int
from pg_locks
where locktype = 'advisory' and objsubid = 2 and granted
  and classid = %(append_class)s and database = (select oid from pg_database where datname = current_database())
