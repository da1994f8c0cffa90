-- Failed events: due again after their delay, or (dead) held. The row of an earlier try gets this one on top; of a
-- first try that was not written down, `first` says what there is to say.
insert into stream.parked as p (
    consumer_group, topic, partition, "offset", event_id, epoch, type, key, value, header_names, header_values,
    timestamp, lane, attempts, due_at, held, first_failed_at, last_failed_at, error_kind, error_stage, error_class,
    error_message, errors, fingerprint, worker)
select %(group)s, r.topic, r.partition, r."offset", r.event_id, %(epoch)s, r.type, r.key, r.value,
       r.names::text[], r.vals::bytea[], to_timestamp(r.stamp / 1000.0), r.lane, r.attempts,
       t.now_ + r.delay * interval '1 second', r.delay is null,
       t.now_ - coalesce((r.first ->> 'ago')::float8, 0) * interval '1 second', t.now_, r.kind, r.stage, r.class, r.message,
       jsonb_build_array(jsonb_build_object('attempt', r.attempts, 'at', stream.rfc3339(t.now_),
                                            'worker', %(worker)s::text, 'class', r.class, 'message', r.message))
       || case when r.first is null then '[]' else jsonb_build_array(jsonb_build_object(
              'attempt', 1, 'at', stream.rfc3339(t.now_ - (r.first ->> 'ago')::float8 * interval '1 second'),
              'worker', %(worker)s::text, 'class', r.first -> 'class', 'message', r.first -> 'message')) end,
       r.fingerprint, %(worker)s
from (select clock_timestamp() as now_) t, unnest(
        %(topics)s::text[], %(partitions)s::int[], %(offsets)s::bigint[], %(ids)s::uuid[], %(types)s::text[],
        %(keys)s::bytea[], %(values)s::bytea[], %(names)s::text[], %(vals)s::text[], %(stamps)s::bigint[],
        %(lanes)s::int[], %(attempts)s::int[], %(firsts)s::text[]::jsonb[], %(delays)s::float8[], %(kinds)s::text[], %(stages)s::text[],
        %(classes)s::text[], %(messages)s::text[], %(fingerprints)s::text[])
     r(topic, partition, "offset", event_id, type, key, value, names, vals, stamp, lane, attempts, first, delay, kind,
       stage, class, message, fingerprint)
on conflict (consumer_group, topic, partition, "offset", event_id, epoch) do update
set attempts = excluded.attempts, due_at = excluded.due_at, held = excluded.held,
    first_failed_at = coalesce(p.first_failed_at, excluded.first_failed_at), last_failed_at = excluded.last_failed_at,
    error_kind = excluded.error_kind, error_stage = excluded.error_stage, error_class = excluded.error_class,
    error_message = excluded.error_message,
    errors = jsonb_path_query_array(excluded.errors || p.errors, '$[0 to 19]'),
    fingerprint = excluded.fingerprint, worker = excluded.worker
