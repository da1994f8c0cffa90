update stream.dead_letter
set status = %(status)s, resolved_at = clock_timestamp(), resolved_by = %(who)s, resolved_reason = %(reason)s
where id = %(letter)s
