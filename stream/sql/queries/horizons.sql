-- How far back each group's ledger remembers, and the ids of the topics it has read.
select consumer_group, ledger_pruned_before, topic_ids from stream.group_state
