-- What retention took before a group had read it.
select g.topic, g.partition, g.from_offset, g.to_offset, g.at from stream.gap g
where %(group)s::text is null or g.consumer_group = %(group)s
order by g.at desc, g.topic, g.partition
