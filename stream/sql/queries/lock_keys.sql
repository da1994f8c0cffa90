-- The append locks of all that this transaction will append, at once and in order.
select stream.lock_keys(%(keys)s::bytea[])
