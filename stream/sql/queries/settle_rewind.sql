update stream.rewind set settled_at = clock_timestamp(), moved = %(moved)s where id = %(rewind)s
