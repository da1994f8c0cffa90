select stream.anything_parked(%(group)s)
