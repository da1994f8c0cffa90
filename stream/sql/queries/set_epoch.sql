update stream.rewind set epoch = %(epoch)s where id = %(rewind)s
