delete from stream.reapply where consumer_group = %(group)s and epoch = %(epoch)s and status = 'planned'
