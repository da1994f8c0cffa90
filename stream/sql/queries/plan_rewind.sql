-- What the rewind is about to do.
with noted as (update stream.rewind set undo = %(undo)s, epoch = %(epoch)s where id = %(rewind)s)
insert into stream.rewind_move (rewind, topic, partition, old_offset, new_offset, upto)
select %(rewind)s, m.* from unnest(%(topics)s::text[], %(partitions)s::int[], %(olds)s::bigint[], %(news)s::bigint[],
                                   %(uptos)s::bigint[]) m
