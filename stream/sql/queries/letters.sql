select l.id, l.consumer_group as "group", l.event_id, l.type, l.key, l.topic, l.partition, l."offset", l.kind, l.stage,
       l.error_class, l.error_message, l.attempts, l.first_failed_at, l.last_failed_at, l.worker, l.trace_id, l.status
from stream.letters(%(status)s, %(group)s, %(error_class)s, %(stage)s, %(since)s, %(until)s, %(key)s, %(fingerprint)s,
                    %(ids)s::bigint[], %(up_to)s) l
order by l.id
