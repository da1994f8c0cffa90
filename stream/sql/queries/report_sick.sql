-- The sick topics as this relay sees them, and away with rows that nobody stands by: of topics it has just written
-- to, and of topics that have no rows.
with sick as (
    insert into stream.sick_topic as t (topic, reason, since)
    select topic, reason, now() from unnest(%(topics)s::text[], %(reasons)s::text[]) s(topic, reason)
    on conflict (topic) do update set reason = excluded.reason where t.reason <> excluded.reason
)
delete from stream.sick_topic t
where t.topic <> all (%(topics)s::text[])
  and (t.topic = any (%(well)s::text[]) or not exists (select from stream.outbox o where o.topic = t.topic))
