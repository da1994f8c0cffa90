select stream.leave_live_heads(%(group)s, %(lanes)s::int[])
