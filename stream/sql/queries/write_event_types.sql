insert into stream.event_type (type, topic, required_fields)
select * from unnest(%s::text[], %s::text[], %s::jsonb[])
on conflict (type) do update set topic = excluded.topic, required_fields = excluded.required_fields
