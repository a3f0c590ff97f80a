"""Whatever happens to the runner, no letter is redriven by itself more often than it may be."""

from collections import Counter

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.auto_world import auto
from support.servers.databases import delete_all

from celery_dlq import Limits, Orders, Pacing, Suspension, Timetable
from celery_dlq.model.automation import AutoState

NAMES = [f"letter-{number}" for number in range(3)]
PER_LETTER = 2

#: One thing that happens. A number says how much of it.
happenings = st.lists(
    st.tuples(
        st.sampled_from([
            "round", "round", "round", "round", "round", "begin", "forward", "back", "restart", "usurp",
            "stale round", "pause", "resume", "resume", "fail", "succeed", "other failure",
        ]),
        st.integers(0, 5),
    ),
    min_size=8,
    max_size=40,
)  # fmt: skip


def happen(w, what, number):
    if what == "round":
        w.pass_(70.0 * (number + 1))
        w.round()
    elif what == "begin":  # the runner is killed when it has begun a run
        w.engine.run(w.lease, lambda: w.lease)
    elif what == "forward":
        w.pass_(10 ** (number + 1))
    elif what == "back":
        w.pass_(-(10 ** (number + 1)))
    elif what == "restart":
        w.restart()
    elif what == "usurp":  # the lease is lost without notice
        w.usurp()
    elif what == "stale round":
        w.engine.run(w.stale, lambda: w.lease)
        w.run_operations()
        w.run_messages()
    elif what == "pause":
        w.store.automations.set_state("charges", AutoState.PAUSED, who="ann", now=w.now)
    elif what == "resume":
        w.store.automations.set_state("charges", AutoState.ACTIVE, who="ann", now=w.now)
    elif what == "fail":
        w.fails = lambda _task_id: True
    elif what == "succeed":
        w.fails = lambda _task_id: False
    else:
        w.fingerprint_of = lambda _task_id: f"other-{number}"


# Each example works on a store for up to a second.
@settings(
    max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None
)
@given(happenings)
def test_no_letter_passes_its_limit(world, own_store, happenings):
    delete_all(own_store.database)
    w = world(
        auto(
            after_s=60.0,
            limits=Limits(per_letter=PER_LETTER, growth=1.0, per_run=2),
            when=Timetable(every_s=1),
            orders=Orders(pacing=Pacing(batch=2)),
            suspend=Suspension(success_below=0.01, of_last=1_000),
        )
    )
    w.die(*NAMES)
    w.fails = lambda _task_id: True
    for what, number in happenings:
        happen(w, what, number)
    assert max(Counter(w.sent).values(), default=0) <= PER_LETTER
    assert w.sent_after_change == []
