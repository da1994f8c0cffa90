update stream.worker set made_way_for = %(rewind)s where consumer_group = %(group)s and worker = %(worker)s
