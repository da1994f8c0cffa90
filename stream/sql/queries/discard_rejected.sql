delete from stream.outbox_rejected where id = any (%(ids)s::bigint[]) returning id
