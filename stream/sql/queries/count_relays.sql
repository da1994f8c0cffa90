select count(*) from pg_locks
where locktype = 'advisory' and objsubid = 2 and granted and classid = %(member_class)s
  and database = (select oid from pg_database where datname = current_database())
