-- The group's rewind before this one, where it was cut off and is a reapply that did move the offsets.
select r.id, r.epoch from stream.rewind r
where r.id = (select max(e.id) from stream.rewind e where e.consumer_group = %(group)s and e.id < %(rewind)s)
  and r.result = 'cut off' and r.moved and r.epoch is not null
