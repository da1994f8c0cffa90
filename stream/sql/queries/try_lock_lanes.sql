select stream.try_lock_lanes(%(lanes)s::int[])
