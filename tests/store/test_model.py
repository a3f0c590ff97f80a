"""Random lives of a few letters on SQLite, beside a simple model of what must hold."""

from __future__ import annotations

import tempfile
from datetime import timedelta
from pathlib import Path

from factories import T0, attempt, letter
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from recount import assert_counts_hold

from celery_dlq.letter import Outcome
from celery_dlq.states import State
from celery_dlq.store.base import Filter
from celery_dlq.store.sql import SQLStore

IDS = ("a", "b", "c", "d")

ids = st.sampled_from(IDS)
minutes = st.integers(0, 30).map(lambda number: T0 + timedelta(minutes=number))
redrives = st.integers(0, 3)
groups = st.sampled_from([("aa", "ValueError"), ("bb", "KeyError"), ("cc", "KeyError")])
filters = st.builds(
    Filter,
    ids=st.lists(ids, max_size=2).map(tuple),
    exception=st.sampled_from([None, "KeyError"]),
    states=st.frozensets(st.sampled_from(State), max_size=2),
)
failures = st.builds(
    lambda name, at, redrive, group: letter(
        name,
        attempt(1, redrive, failed_at=at),
        fingerprint=group[0],
        exception_type=group[1],
    ),
    ids, minutes, redrives, groups,
)  # fmt: skip


class Lives(RuleBasedStateMachine):
    """Never lost, never closed unconfirmed, and the rollups equal a recount."""

    @initialize()
    def open_store(self):
        self.directory = tempfile.TemporaryDirectory()
        self.store = SQLStore(f"sqlite:///{Path(self.directory.name) / 'dlq.sqlite3'}")
        self.failed: dict[str, set] = {name: set() for name in IDS}
        self.claims: list[tuple[str, list[str]]] = []
        self.arrived = 0

    @rule(batch=st.lists(failures, min_size=1, max_size=5))
    def save(self, batch):
        before = self.states()
        saved = self.store.save(batch)
        assert saved.arrived + saved.known == len(batch)
        self.arrived += saved.arrived
        for failure in batch:
            run = failure.attempts[-1]
            self.failed[failure.task_id].add((run.redrive, run.number, run.failed_at))
        assert self.store.save(batch).arrived == 0
        for name, state in before.items():
            assert self.states()[name] in (state, State.DEAD)

    @rule(outcomes=st.lists(st.builds(
        lambda name, redrive, at: Outcome(
            task_id=name, redrive=redrive, succeeded_at=at, worker="w"
        ),
        ids, redrives, minutes), min_size=1, max_size=3))  # fmt: skip
    def succeed(self, outcomes):
        before = self.states()
        resolved = self.store.record_outcomes(outcomes)
        changed = self.changed(before)
        assert len(changed) == resolved
        assert set(changed) <= {item.task_id for item in outcomes}
        assert set(changed.values()) <= {State.RESOLVED}

    @rule(wanted=filters, now=minutes, limit=st.integers(1, 3))
    def claim(self, wanted, now, limit):
        before, token = self.states(), f"t{len(self.claims)}"
        lease = now + timedelta(minutes=5)
        claim = self.store.claim(wanted, token=token, lease_until=lease, limit=limit, now=now)
        taken = [item.task_id for item in claim.letters]
        assert len(taken) <= limit
        assert set(self.changed(before)) <= set(taken)
        for name in taken:
            assert before[name] in (State.DEAD, State.CLAIMED, State.REDRIVEN)
            assert before[name] is not State.REDRIVEN or State.REDRIVEN in wanted.states
        self.claims.append((token, taken))

    @rule(data=st.data(), sent=st.booleans())
    def give_back(self, data, sent):
        if not self.claims:
            return
        token, taken = data.draw(st.sampled_from(self.claims))
        held = [name for name in taken if self.store.get(name).claim_token == token]
        before = self.states()
        moved = (self.store.confirm if sent else self.store.release)(token, taken)
        target = State.REDRIVEN if sent else State.DEAD
        assert self.changed(before) == dict.fromkeys(held, target)
        assert moved == len(held)

    @rule(now=minutes)
    def rescue(self, now):
        before = self.states()
        rescued = self.store.rescue(now)
        changed = self.changed(before)
        assert len(changed) == rescued
        assert set(changed.values()) <= {State.DEAD}
        assert {before[name] for name in changed} <= {State.CLAIMED}

    @rule(wanted=filters, now=minutes)
    def discard(self, wanted, now):
        before = self.states()
        moved = self.store.discard(wanted, who="ann", why="", now=now)
        changed = self.changed(before)
        assert len(changed) == moved
        assert set(changed.values()) <= {State.DISCARDED}
        allowed = wanted.states & {State.DEAD, State.REDRIVEN} or {State.DEAD}
        assert {before[name] for name in changed} <= allowed

    @rule(wanted=filters, now=minutes)
    def undiscard(self, wanted, now):
        before = self.states()
        moved = self.store.undiscard(wanted, who="ann", now=now)
        changed = self.changed(before)
        assert len(changed) == moved
        assert set(changed.values()) <= {State.DEAD}
        assert {before[name] for name in changed} <= {State.DISCARDED}

    @invariant()
    def nothing_is_lost(self):
        for name, runs in self.failed.items():
            found = self.store.get(name)
            assert (found is not None) == bool(runs)
            if found is not None:
                stored = {(run.redrive, run.number, run.failed_at) for run in found.attempts}
                assert stored == runs
                assert (found.claim_token is not None) == (found.state is State.CLAIMED)
                closed = found.state in (State.RESOLVED, State.DISCARDED)
                assert (found.closed_at is not None) == closed

    @invariant()
    def rollups_equal_a_recount(self):
        assert_counts_hold(self.store)
        assert self.store.count(Filter()) == len(self.store.find(Filter()).letters)

    def teardown(self):
        self.store.close()
        self.directory.cleanup()

    def states(self) -> dict[str, State]:
        page = self.store.find(Filter(states=frozenset(State)))
        return {item.task_id: item.state for item in page.letters}

    def changed(self, before: dict[str, State]) -> dict[str, State]:
        after = self.states()
        assert set(after) == set(before)
        return {name: state for name, state in after.items() if state is not before[name]}


Lives.TestCase.settings = settings(
    max_examples=10,
    stateful_step_count=25,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
TestLives = Lives.TestCase
