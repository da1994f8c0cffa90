select stream.append_encoded(
    %(topics)s::text[], %(keys)s::bytea[], %(event_ids)s::uuid[], %(types)s::text[], %(times)s::timestamptz[],
    %(payloads)s::bytea[], array_fill(null::jsonb, array[cardinality(%(topics)s::text[])]),
    %(header_names)s::text[], %(header_values)s::text[],
    %(delays)s::interval[], %(debounces)s::text[], %(max_waits)s::interval[])
