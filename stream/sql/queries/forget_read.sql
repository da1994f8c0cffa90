-- What an earlier range set aside, and has been read again since: it is in the ledger, or parked once more.
delete from stream.reapply_parked a using stream.reapply r
where r.consumer_group = %(group)s and r.epoch = %(epoch)s and a.consumer_group = r.consumer_group
  and a.topic = r.topic and a.partition = r.partition and a."offset" < r.old_offset
  and (exists (select from stream.ledger l where l.consumer_group = a.consumer_group and l.event_id = a.event_id)
       or exists (select from stream.parked p
                  where p.consumer_group = a.consumer_group and p.topic = a.topic and p.partition = a.partition
                    and p."offset" = a."offset" and p.event_id = a.event_id))
