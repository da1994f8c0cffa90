-- Is anything of the group parked? The first row that is not before it in the index, whoever's it is: where most rows
-- are another group's, PostgreSQL would read all of these in the hope of one that is ours.
select coalesce((
    select first.consumer_group = %(group)s
    from (select consumer_group from stream.parked
          where (consumer_group, lane) >= (%(group)s, -2147483648) order by consumer_group, lane limit 1) first), false)
