"""Random lives of a few letters on SQLite, compared with a simple model of the rules."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from sqlalchemy import select
from support.auto_world import queue
from support.factories import T0, attempt, letter
from support.stores import redriving
from support.stores.history import edit
from support.stores.rollup_checks import assert_counts_hold

from celery_dlq.model.letter import Outcome
from celery_dlq.model.states import CLOSED_STATES, State
from celery_dlq.store.base import Expiry, Filter, OngoingAct, Scope
from celery_dlq.store.database import tables
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
expiries = st.lists(
    st.builds(
        lambda wanted, before: Expiry(
            where=replace(wanted, states=wanted.states & CLOSED_STATES), before=before
        ),
        filters, st.none() | minutes,
    ),
    min_size=1, max_size=2,
)  # fmt: skip

#: The tables whose rows go with a letter.
OF_LETTER = (
    tables.attempt, tables.change, tables.handling, tables.auto_hold,
)  # fmt: skip
HANDLER = Scope(name="repair", version="1", where=Filter(), once_per_group=False)


class Lives(RuleBasedStateMachine):
    """Never lost unless deleted, never closed unconfirmed, and the rollups equal a recount."""

    @initialize()
    def open_store(self):
        self.directory = tempfile.TemporaryDirectory()
        self.store = SQLStore(f"sqlite:///{Path(self.directory.name) / 'dlq.sqlite3'}")
        self.failed: dict[str, set] = {name: set() for name in IDS}
        self.claims: list[tuple[str, list[str]]] = []
        #: The state of each letter before its last claim.
        self.was: dict[str, State] = {}
        #: Messages that are, or may be, out: task id, redrive, copy; and the copy of each redrive that ran.
        self.out: list[tuple[str, int, str]] = []
        self.ran: dict[tuple[str, int], set[str]] = {}
        self.arrived = 0
        #: Counts that never fall, by cell.
        self.counted: dict[tuple[str, ...], tuple[int, ...]] = {}

    @rule(batch=st.lists(failures, min_size=1, max_size=5))
    def save(self, batch):
        before = self.states()
        saved = self.store.letters.save(batch)
        assert saved.arrived + saved.known == len(batch)
        self.arrived += saved.arrived
        for failure in batch:
            run = failure.attempts[-1]
            self.failed[failure.task_id].add((run.redrive, run.number, run.failed_at))
        assert self.store.letters.save(batch).arrived == 0
        for name, state in before.items():
            assert self.states()[name] in (state, State.DEAD)

    @rule(outcomes=st.lists(st.builds(
        lambda name, redrive, at: Outcome(
            task_id=name, redrive=redrive, succeeded_at=at, worker="w"
        ),
        ids, redrives, minutes), min_size=1, max_size=3))  # fmt: skip
    def succeed(self, outcomes):
        before = self.states()
        resolved = self.store.letters.record_outcomes(outcomes)
        changed = self.changed(before)
        assert len(changed) == resolved
        assert set(changed) <= {item.task_id for item in outcomes}
        assert set(changed.values()) <= {State.RESOLVED}

    @rule(wanted=filters, now=minutes, limit=st.integers(1, 3))
    def claim(self, wanted, now, limit):
        before, token = self.states(), f"t{len(self.claims)}"
        lease = now + timedelta(minutes=5)
        claim = redriving.claim(
            self.store, wanted, token=token, lease_until=lease, limit=limit, now=now
        )
        taken = [item.task_id for item in claim.letters]
        assert len(taken) <= limit
        # A claim frees the letters whose lease has ended, even if it takes none of them.
        freed = {name for name, state in before.items() if state is State.CLAIMED}
        assert set(self.changed(before)) <= {*taken, *freed}
        for name in taken:
            assert before[name] in (State.DEAD, State.CLAIMED, State.REDRIVEN)
            assert before[name] is not State.REDRIVEN or State.REDRIVEN in wanted.states
            self.was[name] = before[name] if before[name] is State.REDRIVEN else State.DEAD
        self.claims.append((token, taken))
        self.out += [(item.task_id, item.redrive_count + 1, token) for item in claim.letters]

    @rule(data=st.data(), end=st.sampled_from(["release", "confirm", "end"]))
    def give_back(self, data, end):
        if not self.claims:
            return
        token, taken = data.draw(st.sampled_from(self.claims))
        found = filter(None, map(self.store.letters.get, taken))
        held = [one.task_id for one in found if one.claim_token == token]
        before = self.states()
        moved = getattr(redriving, end)(self.store, token, taken)
        released = end == "release"
        targets = {name: self.was[name] if released else State.REDRIVEN for name in held}
        assert self.changed(before) == targets
        assert moved in (None, len(held))
        if released:
            self.out = [one for one in self.out if one[2] != token]

    @rule(now=minutes, is_sent=st.booleans())
    def send_vanished_again(self, now, is_sent):
        """A message that was sent under any claim may have vanished, also one that a worker has accepted."""
        lease = self.store.leases.take("parked.here", holder="me", seconds=600)
        for token in [token for token, _ in self.claims]:
            found = self.store.vanished.find(token, sent_before=now, limit=3, after=None)
            again = f"{token}.{len(self.out)}"
            taken = self.store.vanished.take(lease, found, token=again, now=now)
            sent = {(one.task_id, one.redrive_count + 1, one.claim_token) for one in taken}
            assert len(taken) == len(found)
            assert {self.states()[name] for name, _, _ in sent} <= {State.REDRIVEN}
            if is_sent:
                self.out += sorted(sent)
            else:
                self.store.vanished.give_back(token, [name for name, _, _ in sent], at=now)

    @rule(data=st.data())
    def arrive(self, data):
        if not self.out:
            return
        asked = data.draw(st.lists(st.sampled_from(self.out), min_size=1, max_size=4))
        for key, answer in zip(asked, self.store.sendings.accept(asked), strict=True):
            name, redrive, copy = key
            newest = max(number for one, number, _ in self.out if one == name)
            assert not answer or redrive == newest
            if answer:
                self.ran.setdefault((name, redrive), set()).add(copy)

    @rule(now=minutes)
    def rescue(self, now):
        before = self.states()
        rescued = self.store.claims.rescue(now)
        changed = self.changed(before)
        assert len(changed) == rescued
        assert changed == {name: self.was[name] for name in changed}
        assert {before[name] for name in changed} <= {State.CLAIMED}

    @rule(wanted=filters, now=minutes)
    def discard(self, wanted, now):
        before = self.states()
        moved = self.store.closing.discard(wanted, who="ann", why="", now=now)
        changed = self.changed(before)
        assert len(changed) == moved
        assert set(changed.values()) <= {State.DISCARDED}
        allowed = wanted.states & {State.DEAD, State.REDRIVEN} or {State.DEAD}
        assert {before[name] for name in changed} <= allowed

    @rule(wanted=filters, now=minutes)
    def undiscard(self, wanted, now):
        before = self.states()
        moved = self.store.closing.undiscard(wanted, who="ann", now=now)
        changed = self.changed(before)
        assert len(changed) == moved
        assert set(changed.values()) <= {State.DEAD}
        assert {before[name] for name in changed} <= {State.DISCARDED}

    @rule(at=minutes)
    def edit_hold_and_handle(self, at):
        """Give all letters rows in the other tables."""
        for name, state in self.states().items():
            if state is State.DEAD:
                edit(self.store, name, at=at)
        lease = self.store.leases.take("auto-redrive", holder="me", seconds=600)
        why = dict.fromkeys(self.states(), "failed twice")
        self.store.automations.hold(lease, "again", why, at)
        lease = self.store.leases.take("handlers", holder="me", seconds=600)
        queue(self.store, lease, HANDLER)

    @rule(
        wanted=filters,
        states=st.sampled_from([frozenset(), CLOSED_STATES, frozenset(State), {State.DEAD}]),
        now=minutes,
    )
    def delete(self, wanted, states, now):
        wanted = replace(wanted, states=frozenset(states))
        sources = (wanted.states or CLOSED_STATES) - {State.CLAIMED}
        doomed = {
            one.task_id for one in self.letters() if one.state in sources and matches(wanted, one)
        }
        before = self.states()
        deleted = self.store.deleting.delete(wanted, who="ann", why="", now=now)
        self.assert_gone(before, doomed, deleted)

    @rule(kept=expiries, step=st.integers(1, 3))
    def expire(self, kept, step):
        doomed = {one.task_id for one in self.letters() if has_expired(one, kept)}
        before, keys, after = self.states(), [], None
        while True:
            found = self.store.expiring.find(kept, after, step)
            keys += found.rows
            after = found.next
            if after is None:
                break
        lease = self.store.leases.take("retention", holder="me", seconds=600)
        act = OngoingAct(who="retention", act="expire", detail={}, at=T0)
        deleted, _act = self.store.deleting.delete_closed(keys, lease, act)
        self.assert_gone(before, doomed, deleted)

    @invariant()
    def arrivals_and_outcomes_never_fall(self):
        cells = self.store.monitoring.measures().cells
        assert sum(cell.arrived for cell in cells) == self.arrived
        now = {
            (one.task, one.queue, one.reason, one.exception_type): (
                one.arrived, one.succeeded, one.failed,
            )
            for one in cells
        }  # fmt: skip
        for cell, counts in self.counted.items():
            assert all(was <= count for was, count in zip(counts, now[cell], strict=True))
        self.counted = now

    @invariant()
    def nothing_of_a_deleted_letter_is_left(self):
        self.store.database.read(assert_nothing_is_left)

    @invariant()
    def nothing_is_lost(self):
        for name, runs in self.failed.items():
            found = self.store.letters.get(name)
            assert (found is not None) == bool(runs)
            if found is not None:
                stored = {(run.redrive, run.number, run.failed_at) for run in found.attempts}
                assert stored == runs
                assert (found.claim_token is not None) == (found.state is State.CLAIMED)
                closed = found.state in (State.RESOLVED, State.DISCARDED)
                assert (found.closed_at is not None) == closed

    @invariant()
    def no_redrive_runs_twice(self):
        assert all(len(copies) == 1 for copies in self.ran.values())

    @invariant()
    def rollups_equal_a_recount(self):
        assert_counts_hold(self.store)
        assert self.store.counts.letters(Filter()) == len(self.store.letters.find(Filter()).letters)

    def teardown(self):
        self.store.close()
        self.directory.cleanup()

    def letters(self):
        return self.store.letters.find(Filter(states=frozenset(State))).letters

    def states(self) -> dict[str, State]:
        return {item.task_id: item.state for item in self.letters()}

    def assert_gone(self, before: dict[str, State], doomed: set[str], deleted: int) -> None:
        """These letters were deleted; the others stayed as they were."""
        assert deleted == len(doomed)
        assert self.states() == {
            name: state for name, state in before.items() if name not in doomed
        }
        for name in doomed:
            self.failed[name] = set()

    def changed(self, before: dict[str, State]) -> dict[str, State]:
        after = self.states()
        assert set(after) == set(before)
        return {name: state for name, state in after.items() if state is not before[name]}


def matches(wanted, one) -> bool:
    return (not wanted.ids or one.task_id in wanted.ids) and (
        wanted.exception in (None, one.exception_type)
    )


def has_expired(one, kept) -> bool:
    """Whether a letter has expired by the first of ``kept`` that matches it. If the clock of its worker was
    ahead, so that it was closed before it failed, it waits until it would expire by that failure, too."""
    latest = max((expiry.before for expiry in kept if expiry.before is not None), default=None)
    if latest is None or one.last_failed_at >= latest:
        return False
    for expiry in kept:
        if one.state in (expiry.where.states or CLOSED_STATES) and matches(expiry.where, one):
            return None not in (one.closed_at, expiry.before) and one.closed_at < expiry.before
    return False


def assert_nothing_is_left(connection) -> None:
    """All rows that belong to letters belong to letters that are there."""
    letter, content, sending = tables.letter, tables.content, tables.sending
    here = select(letter.c.task_id)
    for table in OF_LETTER:
        left = select(table.c.task_id).where(table.c.task_id.not_in(here))
        assert connection.execute(left).scalars().all() == []
    bodies = select(content.c.id).where(content.c.id.not_in(select(letter.c.id)))
    assert connection.execute(bodies).scalars().all() == []
    texts = select(sending.c.why, sending.c.change).where(sending.c.task_id.not_in(here))
    assert all(tuple(row) == ("", "") for row in connection.execute(texts))


Lives.TestCase.settings = settings(
    max_examples=max(6, settings.default.max_examples // 4),
    stateful_step_count=20,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
TestLives = Lives.TestCase
