-- What failed alike, newest first; kind and sample are the newest letter's.
select s.fingerprint, s.consumer_group as "group", d.kind, d.stage, d.error_class, s.count, s.first_at, s.last_at,
       d.error_message as sample, d.id as newest
from (
    select l.consumer_group, l.fingerprint, count(*) as count, min(l.first_failed_at) as first_at,
           max(l.last_failed_at) as last_at, max(l.id) as newest
    from stream.letters('open', %(group)s, %(error_class)s, %(stage)s, %(since)s, %(until)s, %(key)s, %(fingerprint)s,
                        %(ids)s::bigint[], %(up_to)s) l
    group by l.consumer_group, l.fingerprint
) s
join stream.dead_letter d on d.id = s.newest
order by s.last_at desc, s.consumer_group, s.fingerprint
