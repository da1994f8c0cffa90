-- Dead letters of parked rows, and their records for <group>.dlq. Returns event ids, and their letters.
with letter as (
    insert into stream.dead_letter (
        consumer_group, topic, partition, "offset", event_id, epoch, type, key, value, header_names, header_values,
        timestamp, kind, stage, error_class, error_message, error_stack, errors, fingerprint, attempts,
        first_failed_at, last_failed_at, worker, trace_id, on_dead, deploy_fault, replays)
    select p.consumer_group, p.topic, p.partition, p."offset", p.event_id, r.epoch, p.type, p.key, p.value,
           p.header_names, p.header_values, p.timestamp, p.error_kind, p.error_stage, p.error_class, p.error_message,
           r.stack, p.errors, p.fingerprint, p.attempts, p.first_failed_at, p.last_failed_at, p.worker, r.trace_id,
           %(on_dead)s, r.deploy_fault, p.replays
    from unnest(%(topics)s::text[], %(partitions)s::int[], %(offsets)s::bigint[], %(ids)s::uuid[],
                %(stacks)s::text[], %(trace_ids)s::text[], %(deploy_faults)s::boolean[], %(epochs)s::int[])
         r(topic, partition, "offset", event_id, stack, trace_id, deploy_fault, epoch)
    cross join lateral (  -- each is looked up by its key: see applied.sql
        select * from stream.parked p
        where p.consumer_group = %(group)s and p.topic = r.topic and p.partition = r.partition
          and p."offset" = r."offset" and p.event_id = r.event_id and p.epoch = %(epoch)s offset 0) p
    returning id, event_id
)
select array_agg(event_id), array_agg(id), stream.publish_dead_letters(array_agg(id)) from letter
