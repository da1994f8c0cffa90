-- What this role may not do with the tables and functions of schema stream, and has to.
select r.missing from (
    select 1 as kind, 'USAGE on schema stream' as missing
    where not has_schema_privilege(to_regnamespace('stream'), 'USAGE')
    union all
    select 2, format('%s on %s', p.name, format('stream.%I', c.relname))
    from pg_class c cross join unnest(array['SELECT', 'INSERT', 'UPDATE', 'DELETE']) p(name)
    where c.relnamespace = to_regnamespace('stream') and c.relkind in ('r', 'p')
      and not has_table_privilege(c.oid, p.name)
    union all
    select 3, format('EXECUTE on function stream.%I', f.proname)
    from pg_proc f
    where f.pronamespace = to_regnamespace('stream') and not has_function_privilege(f.oid, 'EXECUTE')
) r
order by r.kind, r.missing
