-- The server, its clock, and the lock table that everybody shares.
select current_setting('server_version') as version, current_database() as database, quote_ident(current_user) as role,
       clock_timestamp() as clock,
       current_setting('max_locks_per_transaction')::int as locks_per_transaction,
       current_setting('max_locks_per_transaction')::bigint
           * (current_setting('max_connections')::int + current_setting('max_prepared_transactions')::int) as locks,
       (select count(*) from pg_locks where not fastpath) as locks_held
