select stream.lock_lanes(%(lanes)s::int[])
