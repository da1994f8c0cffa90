select coalesce(max(id), 0) from stream.dead_letter
