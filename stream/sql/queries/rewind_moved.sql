select moved from stream.rewind where id = %(rewind)s
