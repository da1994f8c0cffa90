update stream.group_state set most_record_bytes = %(bytes)s where consumer_group = %(group)s
