"""Floors: what may be skipped, against a model of a table whose ids commit in any order."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from stream.floors import SHARDS, Floors, ReadFrom, Tally

SHARD = 7


def test_without_writers_one_look_settles_all_ids() -> None:
    floors = Floors()
    floors.observe(41, [])
    assert floors.settled == [41] * SHARDS


def test_ids_taken_before_a_look_are_settled_once_its_lock_holders_have_ended() -> None:
    floors = Floors()
    floors.observe(10, [("3/1", SHARD)])
    assert (floors.settled[SHARD], floors.settled[SHARD + 1]) == (0, 10), "only the holder's own shard waits"
    floors.observe(20, [("3/1", SHARD), ("4/1", SHARD)])
    assert floors.settled[SHARD] == 0
    floors.observe(30, [("4/1", SHARD)])
    assert floors.settled[SHARD] == 10, "the one that began later does not hold up the first ten"
    floors.observe(40, [("5/1", SHARD)])
    assert floors.settled[SHARD] == 30
    floors.observe(50, [])
    assert floors.settled[SHARD] == 50


def test_settled_in_several_shards_is_the_least_of_them() -> None:
    floors = Floors()
    floors.observe(10, [("3/1", SHARD)])
    assert floors.settled_in([SHARD, SHARD + 1]) == 0
    assert floors.settled_in([SHARD + 1, SHARD + 2]) == 10
    assert floors.settled_in([]) == 0


def test_a_floor_stays_below_the_lowest_row_and_never_falls() -> None:
    place = ReadFrom()
    place.was_read(set(), settled=100, lowest=41, last=99, full=False)
    assert place.floor == 40
    place.was_read(set(), settled=100, lowest=30, last=30, full=False)
    assert place.floor == 40
    place.was_read(set(), settled=100, lowest=None, last=None, full=False)
    assert place.floor == 100


def test_a_read_begins_behind_the_keys_left_out_until_one_of_them_is_wanted_again() -> None:
    place, hot = ReadFrom(), {b"hot"}
    place.was_read(hot, settled=1000, lowest=1, last=64, full=True)
    assert place.begin(hot) == 64
    place.was_read(hot, settled=1000, lowest=1, last=70, full=False)
    assert (place.begin(hot), place.begin({b"hot", b"warm"})) == (1000, 1000)
    assert (place.begin(set()), place.begin({b"warm"})) == (0, 0), "the hot key's rows begin at the floor"
    assert not place.refills({b"hot", b"warm"})
    assert place.refills({b"warm"})


def test_a_read_that_was_cut_short_moves_nothing_but_remembers_who_was_left_out() -> None:
    place = ReadFrom()
    place.was_cut_short({b"hot"})
    assert (place.floor, place.begin({b"hot"})) == (0, 0)
    assert place.refills(set())


def test_what_is_dropped_from_memory_is_read_again_before_what_stands_behind_it() -> None:
    place = ReadFrom()
    place.was_read(set(), settled=17, lowest=1, last=3, full=True)
    assert place.begin({b"hot"}) == 3, "the others' rows up to there are in memory"
    place.was_lost()
    place.was_cut_short(set())
    assert place.begin({b"hot"}) == 0


@dataclass
class Table:
    """One shard: transactions take a key's lock and then an id, and commit or roll back in any order."""

    last_id: int = 0
    rows: dict[int, bytes] = field(default_factory=dict)
    open: dict[bytes, tuple[str, list[int]]] = field(default_factory=dict)  # by key: who holds it, ids taken
    begun: int = 0

    def append(self, key: bytes) -> None:
        _, ids = self.open.setdefault(key, (f"1/{self.begun}", []))
        if not ids:
            self.begun += 1
        self.last_id += 1
        ids.append(self.last_id)

    def end(self, key: bytes, commits: bool) -> None:
        _, ids = self.open.pop(key, ("", []))
        if commits:
            self.rows.update(dict.fromkeys(ids, key))

    def holders(self) -> list[tuple[str, int]]:
        return [(holder, SHARD) for holder, _ in self.open.values()]


KEYS = [b"a", b"b", b"c"]
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.sampled_from(KEYS)),
        st.tuples(st.just("append"), st.sampled_from(KEYS)),
        st.tuples(st.just("commit"), st.sampled_from(KEYS)),
        st.tuples(st.just("roll back"), st.sampled_from(KEYS)),
        st.tuples(st.just("look"), st.integers(0, 2)),
        st.tuples(st.just("read"), st.integers(1, 4)),
        st.tuples(st.just("publish"), st.sampled_from(KEYS)),
        st.tuples(st.just("forget"), st.just(0)),
    ),
    min_size=30,
    max_size=120,
)


@given(STEPS)
@settings(max_examples=200, deadline=None)
def test_whatever_commits_when_every_row_is_read_and_each_key_in_order(
    steps: list[tuple[str, object]],
) -> None:
    """A relay in small: rows in memory, keys with two there left out, rows published (and deleted) from the first."""
    table, floors, place = Table(), Floors(), ReadFrom()
    memory: dict[bytes, list[int]] = {key: [] for key in KEYS}
    done: dict[bytes, list[int]] = {key: [] for key in KEYS}

    def read(limit: int, cut_short: bool = False) -> None:
        settled = floors.settled[SHARD]
        queued = {key for key in KEYS if len(memory[key]) >= 2}
        known = {id for ids in memory.values() for id in ids}
        begin = place.begin(queued)
        found = [
            id for id in sorted(table.rows) if id > begin and id not in known and table.rows[id] not in queued
        ][:limit]
        if cut_short:
            place.was_cut_short(queued)
            found = found[:1]
        else:
            place.was_read(
                queued,
                settled=settled,
                lowest=min([*known, *found], default=None),
                last=found[-1] if found else None,
                full=len(found) == limit,
            )
        for id in found:
            memory[table.rows[id]].append(id)

    def publish(key: bytes) -> None:
        for id in memory[key][:1]:
            done[key].append(id)
            del table.rows[id]
        memory[key] = memory[key][1:]

    for name, argument in steps:
        if name == "append":
            assert isinstance(argument, bytes)
            table.append(argument)
        elif name in ("commit", "roll back"):
            assert isinstance(argument, bytes)
            table.end(argument, commits=name == "commit")
        elif name == "look":
            floors.observe(table.last_id, table.holders())
        elif name == "read":
            assert isinstance(argument, int)
            read(argument, cut_short=argument == 4)
        elif name == "publish":
            assert isinstance(argument, bytes)
            publish(argument)
        else:
            memory = {key: [] for key in KEYS}
            place.was_lost()

    for key in KEYS:
        table.end(key, commits=True)
    while table.rows:
        floors.observe(table.last_id, table.holders())
        read(3)
        assert any(memory.values()), f"never read: {table.rows}, floor {place.floor}"
        slow_first = min((key for key in KEYS if memory[key]), key=lambda key: len(done[key]))
        publish(slow_first)
    for ids in done.values():
        assert ids == sorted(ids)


def test_a_tally_is_complete_once_as_many_rows_are_gone_as_ids_were_taken() -> None:
    tally = Tally()
    assert not tally.is_complete(0), "nobody has looked yet"
    tally.settled_at(10)
    assert tally.is_complete(10)
    assert tally.lacks(12)
    assert not tally.lacks(12, present=[11, 12, 13])
    tally.gone([12])
    assert tally.lacks(12)
    assert not tally.lacks(12, present=[11])
    assert not tally.is_complete(12)
    tally.gone([11])
    assert tally.is_complete(12)
    assert not tally.is_complete(13)


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("take"), st.integers(1, 5)),
            st.tuples(st.just("commit"), st.integers(0, 9)),
            st.tuples(st.just("roll back"), st.integers(0, 9)),
            st.tuples(st.just("delete"), st.integers(0, 9)),
            st.tuples(st.just("look"), st.just(0)),
        ),
        max_size=60,
    )
)
def test_a_complete_tally_leaves_no_row_in_the_table_and_none_to_come(steps: list[tuple[str, int]]) -> None:
    tally, last = Tally(), 0
    open_ids: list[int] = []
    table: list[int] = []
    for step, n in steps:
        if step == "take":
            open_ids += range(last + 1, last + 1 + n)
            last += n
        elif step in ("commit", "roll back") and open_ids:
            id = open_ids.pop(n % len(open_ids))
            if step == "commit":
                table.append(id)
        elif step == "delete" and table:
            tally.gone([table.pop(n % len(table))])
        elif step == "look" and not table and not open_ids:
            tally.settled_at(last)
        if tally.is_complete(last):
            assert not table and not open_ids
        if not tally.lacks(last, present=table):
            assert not open_ids


def test_a_tally_forgets_rather_than_grows() -> None:
    tally = Tally()
    tally.settled_at(0)
    tally.gone(range(2, 2 + 3 * Tally.MOST))
    assert not tally.is_complete(10)
    tally.settled_at(1)
    assert not tally.is_complete(10), "what it forgot it does not know"
