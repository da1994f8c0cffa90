"""Contest of starving: from the commit of an order to the commit of its effect in a group that keeps up, while a new
group, another process, goes through a long history; against the same group alone."""

from __future__ import annotations

from contextlib import ExitStack

from benchmarks.contest import Sample
from benchmarks.groups import applied, check_effects, shared_out, start
from benchmarks.latency import RATE, WARM_S, place
from benchmarks.process import Clock, Process
from benchmarks.stage import Scene, Stage, wait_until

LIVE, NEWCOMER = "live", "newcomer"
UNDER_WAY = 200  # events of history, and the start of the new group is over
# Percentiles in milliseconds, and effects a second; by the server's own stamps, as of latency.
TOOK = """
select percentile_cont(array[0.5, 0.95]) within group (order by 1000 * extract(epoch from done - written)),
       count(*) / extract(epoch from max(done) - min(written))
from (select pg_xact_commit_timestamp(p.xmin) as written, pg_xact_commit_timestamp(e.xmin) as done
      from placed p join effect e using (placed_at) where p.n >= %s) took
"""


def measure(
    stage: Stage, seconds: int, history: int, *, newcomer: bool, rate: str | None = None, batch: int = 1
) -> Sample:
    """The 95th percentile in milliseconds; `also` has the median, and what each group got done in a second.

    `newcomer`: there is a new group, with this `rate` as its `catch_up_rate`. The history is there in any case.
    """
    with stage.scene() as scene, ExitStack() as stack:
        warm, count = RATE * WARM_S, RATE * seconds
        events = stage.orders.placed(warm + count, keys=(warm + count) // 4)
        scene.fill_topic(stage.orders.placed(history, keys=history // 4, first=len(events)))
        scene.conn.execute("create table placed (n int, placed_at timestamptz)")
        relay, live = members = [Process.stream(scene, "relay"), start(scene, LIVE, raw=False)]
        for member in members:
            stack.callback(member.kill)
        wait_until(lambda: live.check_alive() and shared_out(scene, LIVE, 1), "the partitions", every_s=0.1)
        place(scene, events[:1], 0, raw=False)
        wait_until(lambda: relay.check_alive() and live.check_alive() and applied(scene, 1), "an effect")
        if newcomer:
            scene.settings = {"BENCH_BATCH": str(batch)} | ({"BENCH_CATCH_UP_RATE": rate} if rate else {})
            new = start(scene, NEWCOMER, raw=False)
            members.append(new)
            stack.callback(new.kill)
            wait_until(lambda: new.check_alive() and caught_up(scene) >= UNDER_WAY, "the new group")

        place(scene, events[1:warm], 1, raw=False)
        before, first = Clock.read(stage, members), caught_up(scene)
        place(scene, events[warm:], warm, raw=False)
        cost, last = before.until(Clock.read(stage, members), count), caught_up(scene)
        assert last < history, "the new group was through before the load was: it needs more history"
        wait_until(
            lambda: all(m.check_alive() for m in members) and applied(scene, len(events)), "all effects"
        )
        for member in members:
            member.stop()
        check_effects(scene, len(events), beside=caught_up(scene))
        [(took, done)] = scene.conn.execute(TOOK, [warm]).fetchall()
        assert isinstance(took, list)
        also = {"p50": float(took[0]), "done/s": float(str(done)), "history/s": (last - first) / seconds}
        return Sample(float(took[1]), cost, also)


def caught_up(scene: Scene) -> int:
    """Events of history that the new group has applied."""
    return scene.count("select count(*) from newcomer_effect")
