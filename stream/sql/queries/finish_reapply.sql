update stream.reapply set status = 'done' where consumer_group = %(group)s and epoch = %(epoch)s
