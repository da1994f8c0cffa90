select start_offsets, partitions_seen, topic_ids, ledger_pruned_before, history_ends
from stream.group_state
where consumer_group = %s
