update stream.group_state
set most_record_bytes = %(bytes)s, nudge_after = %(nudge_s)s * interval '1 second'
where consumer_group = %(group)s
