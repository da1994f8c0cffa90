-- Until the transaction's end nobody changes what holds the group.
select from stream.group_state where consumer_group = %(group)s for update
