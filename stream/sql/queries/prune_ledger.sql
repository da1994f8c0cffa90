-- Delete the oldest rows of these groups, `most` at most: how many, and the time of the youngest. They are found through
-- ledger_at, from where the last call ended: what it deleted, and the rows of other groups, are not walked over again.
with gone as (
    delete from stream.ledger
    where ctid = any (array(select l.ctid from stream.ledger l
                            where l.at >= %(reached)s and l.at < %(before)s and l.consumer_group = any (%(groups)s)
                            order by l.at limit %(most)s))
    returning at
)
select count(*), max(at) from gone
