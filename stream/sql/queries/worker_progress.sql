update stream.worker set seen_at = clock_timestamp(), progress = %(progress)s
where consumer_group = %(group)s and worker = %(worker)s
