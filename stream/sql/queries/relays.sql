-- Relays at work: their sessions, by the membership lock each holds, and how many shards each owns. `since` and
-- `client` are null where this role may not see other roles' sessions.
select m.pid, host(a.client_addr) as client,
       (select count(*) from pg_locks s
        where s.locktype = 'advisory' and s.objsubid = 2 and s.granted and s.pid = m.pid
          and s.classid = %(shard_class)s and s.database = m.database) as shards,
       a.backend_start as since
from pg_locks m
left join pg_stat_activity a on a.pid = m.pid
where m.locktype = 'advisory' and m.objsubid = 2 and m.granted and m.classid = %(member_class)s
  and m.database = (select oid from pg_database where datname = current_database())
order by a.backend_start, m.pid
