"""Lanes: no two records of a key run together, each key's run in order, and every record runs."""

from collections import Counter

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from stream.events import Record
from stream.lanes import Lanes, Run, lane_of, size_of
from stream.outcomes import FirstTry


def record(offset: int, key: str | None = "a", partition: int = 0, topic: str = "orders") -> Record:
    return Record(topic, partition, offset, None if key is None else key.encode(), b"value", [], 0)


def failed(at: float, again_at: float) -> FirstTry:
    return FirstTry(at, again_at, "ValueError", "not now")


def offsets(run: Run | None) -> list[int]:
    return [] if run is None else [r.offset for r in run.records]


def test_a_run_holds_each_keys_records_in_order_up_to_the_limit() -> None:
    lanes = Lanes()
    lanes.add([record(0, "a"), record(1, "b"), record(2, "a"), record(3, "b")])
    assert offsets(lanes.take(3)) == [0, 2, 1]
    assert lanes.take(3) is None  # both keys are busy


def test_a_busy_key_holds_no_other_key() -> None:
    lanes = Lanes()
    lanes.add([record(0, "a"), record(1, "a")])
    first = lanes.take(1)
    lanes.add([record(2, "b")])
    assert offsets(lanes.take(9)) == [2]
    lanes.settle(first)
    assert offsets(lanes.take(9)) == [1]


def test_records_given_back_run_again_before_those_behind_them() -> None:
    lanes = Lanes()
    first, behind = record(0, "a"), record(1, "a")
    lanes.add([first, behind, record(2, "a"), record(3, "b")])
    run = lanes.take(2)
    lanes.settle(run, back=[first, behind])
    assert offsets(lanes.take(9)) == [3, 0, 1, 2]


def test_retry_records_have_runs_of_their_own_with_one_a_key() -> None:
    lanes = Lanes("testers.retry")
    retries = [record(n, key, topic="testers.retry") for n, key in enumerate("aab")]
    lanes.add([*retries, record(3, "a"), record(4, "b")])
    woken = lanes.take_retries(9)
    assert (offsets(woken), woken.retry) == ([0, 2], True)
    assert lanes.take_retries(9) is None  # the second of key a waits for the first
    assert (offsets(lanes.take(9)), lanes.take(9)) == ([3, 4], None)
    lanes.settle(woken)
    assert offsets(lanes.take_retries(1)) == [1]


def test_records_without_a_key_share_the_lane_of_their_partition() -> None:
    lanes = Lanes()
    lanes.add([record(0, None, 0), record(1, None, 0), record(2, None, 1)])
    assert offsets(lanes.take(1)) == [0]
    assert offsets(lanes.take(9)) == [2]


def test_a_lane_whose_first_record_failed_waits_for_its_second_try_and_holds_no_other() -> None:
    lanes = Lanes()
    lanes.add([record(0, "a"), record(1, "a"), record(2, "b")])
    run = lanes.take(1)
    first = failed(5.0, 7.0)
    lanes.settle(run, back=run.records, first={("orders", b"a"): first})
    assert (lanes.waits, lanes.next_release(), lanes.startable) == (1, 7.0, 1)
    lanes.release(6.9)
    assert offsets(lanes.take(9, again=True)) == [2]
    lanes.release(7.0)
    assert (lanes.waits, lanes.next_release()) == (0, None)
    assert lanes.take(9) is None  # second tries are asked for
    second = lanes.take_again(9)
    assert (offsets(second), second.first) == ([0, 1], {("orders", b"a"): first})
    lanes.settle(second)
    lanes.add([record(3, "a")])
    assert (offsets(lanes.take(9)), lanes.take_again(9)) == ([3], None)


def test_a_second_try_that_was_not_made_is_still_to_be_made() -> None:
    lanes = Lanes()
    lanes.add([record(0, "a"), record(1, "a")])
    run = lanes.take(1)
    lanes.settle(run, back=run.records, first={("orders", b"a"): failed(0.0, 1.0)})
    lanes.release(1.0)
    again = lanes.take_again(1)
    lanes.settle(again, back=again.records)
    again = lanes.take_again(1)
    assert (offsets(again), list(again.first)) == ([0], [("orders", b"a")])
    lanes.settle(again)
    assert (offsets(lanes.take(9)), lanes.waits) == ([1], 0)


def test_a_dropped_partition_takes_its_waiting_records_with_it() -> None:
    lanes = Lanes()
    lanes.add([record(0, "a")])
    run = lanes.take(1)
    lanes.settle(run, back=run.records, first={("orders", b"a"): failed(0.0, 1.0)})
    lanes.drop("orders", 0)
    assert (lanes.waits, lanes.count) == (0, 0)
    lanes.add([record(0, "a")])  # the partition came back
    assert (offsets(lanes.take(9)), lanes.take_again(9)) == ([0], None)
    lanes.release(1.0)  # the old wait wakes nobody
    assert lanes.startable == 0


def test_a_dropped_partition_is_forgotten_but_what_runs_still_holds_its_key() -> None:
    lanes = Lanes()
    lanes.add([record(0, "a"), record(1, "a"), record(2, "b", partition=1)])
    running = lanes.take(1)
    lanes.drop("orders", 0)
    lanes.add([record(0, "a")])  # the partition came back
    assert offsets(lanes.take(9)) == [2]
    lanes.settle(running)
    assert offsets(lanes.take(9)) == [0]


class Schedule(RuleBasedStateMachine):
    """Any order of adding, taking, settling with failures, waiting and dropping."""

    runs = Bundle("runs")

    def __init__(self) -> None:
        super().__init__()
        self.lanes = Lanes()
        self.offset = 0
        self.running: list[Run] = []
        self.generation = 0  # offsets below it were dropped
        self.now = 0.0
        self.waiting: dict[object, list[int]] = {}  # what each lane must still run, in order
        self.added: dict[int, Record] = {}

    @rule(keys=st.lists(st.sampled_from(["a", "b", "c", None]), max_size=6))
    def add(self, keys: list[str | None]) -> None:
        new = [record(self.offset + n, key) for n, key in enumerate(keys)]
        self.offset += len(new)
        for r in new:
            self.added[r.offset] = r
            self.waiting.setdefault(lane_of(r), []).append(r.offset)
        self.lanes.add(new)

    @rule(seconds=st.integers(0, 3))
    def wait(self, seconds: int) -> None:
        self.now += seconds
        self.lanes.release(self.now)

    @rule(limit=st.integers(1, 5), which=st.integers(0, 2), target=runs)
    def take(self, limit: int, which: int) -> Run | None:
        run = (self.lanes.take, self.take_both, self.lanes.take_again)[which](limit)
        if run is None:
            return None
        assert 1 <= len(run.records) <= limit
        busy = {lane_of(r) for other in self.running for r in other.records}
        for key in {lane_of(r) for r in run.records}:
            assert key not in busy, "two records of a key run together"
            mine = [r.offset for r in run.records if lane_of(r) == key]
            assert mine == self.waiting[key][: len(mine)], "out of order"
        self.running.append(run)
        return run

    def take_both(self, limit: int) -> Run | None:
        return self.lanes.take(limit, again=True)

    @rule(run=consumes(runs), failing=st.sets(st.integers(0, 5)), waits=st.booleans())
    def settle(self, run: Run | None, failing: set[int], waits: bool) -> None:
        if run is None:
            return
        self.running.remove(run)
        back, failed, first = [], set(), {}
        for n, r in enumerate(run.records):
            gone = r.offset < self.generation
            if lane_of(r) in failed:
                back.append(r)
            elif n in failing and not gone:
                failed.add(lane_of(r))
                back.append(r)
                if waits and lane_of(r) not in run.first:
                    first[lane_of(r)] = FirstTry(self.now, self.now + n, "ValueError", "not now")
            elif not gone:
                self.waiting[lane_of(r)].remove(r.offset)
        self.lanes.settle(run, back, first)

    @rule()
    def drop(self) -> None:
        self.lanes.drop("orders", 0)
        self.generation = self.offset
        self.waiting = {}

    @invariant()
    def the_counts_agree(self) -> None:
        running = [r for run in self.running for r in run.records]
        alive = {o for offsets in self.waiting.values() for o in offsets} | {r.offset for r in running}
        assert self.lanes.count == len(alive)
        assert self.lanes.bytes == sum(size_of(self.added[o]) for o in alive)
        assert self.lanes.startable >= 0

    def teardown(self) -> None:
        """Nothing is forgotten: once all runs end well, every record left runs."""
        for run in self.running:
            self.lanes.settle(run)
            for r in run.records:
                if r.offset >= self.generation:
                    self.waiting[lane_of(r)].remove(r.offset)
        ran: Counter[int] = Counter()
        self.lanes.release(self.now + 10)
        while run := self.lanes.take(3, again=True):
            ran.update(r.offset for r in run.records)
            self.lanes.settle(run)
        assert ran == Counter(o for offsets in self.waiting.values() for o in offsets)
        assert (self.lanes.count, self.lanes.bytes, self.lanes.startable, self.lanes.waits) == (0, 0, 0, 0)


TestAnySchedule = Schedule.TestCase
TestAnySchedule.settings = settings(max_examples=200, stateful_step_count=30, deadline=None)
