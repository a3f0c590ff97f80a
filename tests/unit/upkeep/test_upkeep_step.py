import itertools
import threading
from datetime import datetime, timedelta, timezone
from pathlib import Path
from types import SimpleNamespace

import pytest

from celery_dlq.errors import RedriveError, StoreUnavailable
from celery_dlq.store.base import Lease, ToDo
from celery_dlq.store.database.clock import why_wrong
from celery_dlq.upkeep import chores, periodic
from celery_dlq.upkeep.chores import UpkeepThread
from celery_dlq.upkeep.step import UpkeepStep
from celery_dlq.worker.admission.doubts import Doubts
from celery_dlq.worker.writing.store_calls import StoreHealth

PATIENCE_S = 60


class Store:
    """Answers each request for the lease in turn; has nothing parked."""

    #: What there is to do at each look, in turn; the last one stays.
    looks = (ToDo(lease_free_in_s=0.0, operations=False),)

    def __init__(self, *answers):
        self.answers, self.given_up, self.pruned = list(answers), [], 0
        self.expired, self.doubted = [], []
        # Its roles.
        self.leases = SimpleNamespace(
            to_do=self.to_do, take=self.take_lease, give_up=self.give_up_lease
        )
        self.sendings = SimpleNamespace(expire=self.expire_sendings)
        self.parked = SimpleNamespace(
            next_due=lambda place: None, prune=self.prune_releases, in_doubt=self.in_doubt
        )
        self.circuits = SimpleNamespace(prune=self.prune_circuits)
        self.recorder_reports = SimpleNamespace(prune=self.prune_circuits)
        self.vanished = SimpleNamespace(repairs=lambda broker: {})
        self.values = SimpleNamespace(add=self.add_values)
        #: How often a regrouping was looked for.
        self.looked = 0
        #: Whether letters lack values, at each look.
        self.lacking = []
        self.done = threading.Event()
        self.left = list(self.looks)
        self.names = []
        #: How far the database's clock is ahead.
        self.ahead = timedelta()

    def in_doubt(self, place):
        self.doubted.append(place)
        return frozenset()

    def add_values(self, *, letters):
        return self.lacking.pop() if self.lacking else False

    def regroup(self, *, should_stop):
        self.looked += 1
        return True

    def to_do(self, name):
        self.names.append(name)
        return self.left.pop(0) if len(self.left) > 1 else self.left[0]

    def why_clock_wrong(self):
        return why_wrong(self.ahead)

    def now(self):
        return datetime.now(timezone.utc) + self.ahead

    def take_lease(self, name, *, holder, seconds):
        answer = self.answers.pop(0) if self.answers else None
        if not self.answers:
            self.done.set()
        if isinstance(answer, Exception):
            raise answer
        return answer

    def give_up_lease(self, lease):
        self.given_up.append(lease)

    def expire_sendings(self, *, sent_before, now):
        self.expired.append(now - sent_before)

    def prune_releases(self, *, older_than_s):
        self.pruned += 1

    def prune_circuits(self, *, older_than_s):
        assert older_than_s > 0


@pytest.fixture(autouse=True)
def impatience(monkeypatch):
    for name in ("LOOK_S", "TRY_S"):
        monkeypatch.setattr(chores, name, 0.001)
    monkeypatch.setattr(periodic, "TRY_S", 0.001)


HELD = Lease(name="parked.here", token=3)


def queue(store):
    return SimpleNamespace(
        app=None,
        store=store,
        hold=SimpleNamespace(place="here", vanished_after_s=60.0),
        doubts=Doubts("here"),
        recorder_dir=Path("nowhere"),
        settings=SimpleNamespace(
            auto_redrive=(),
            outcome_timeout=3_600.0,
            stall_after=0.0,
        ),
        redrives=SimpleNamespace(left=list),
        recorder=SimpleNamespace(recover=lambda **_: iter(()), uncovered=list),
        retention=None,
        handlers={},
        check_store_url=lambda: "sqlite:////srv/store.sqlite3",
        prepare_store=lambda: None,
        groups=SimpleNamespace(regrouper=lambda: SimpleNamespace(run=store.regroup)),
        store_health=StoreHealth(Path("spool")),
    )


def work_off(store):
    thread = UpkeepThread(queue(store), "me", wake=lambda: None)
    thread.start()
    assert store.done.wait(PATIENCE_S)
    thread.stopping.set()
    thread.join(PATIENCE_S)
    assert not thread.is_alive()


def test_it_waits_for_its_turn_and_ends_it_with_the_worker():
    held = Lease(name="parked.here", token=3)
    store = Store(None, None, held, held)
    work_off(store)
    assert store.given_up in ([held], []), "unless somebody else had it by then"
    assert store.pruned == 1
    assert store.expired == [timedelta(hours=1)]


def test_at_its_end_it_says_which_messages_in_doubt_it_took():
    accepted, dlq = [], queue(Store(None))
    dlq.store.parked.in_doubt = lambda place: {"m1", "m2"}
    dlq.store.parked.accept = accepted.extend
    dlq.doubts.take("m1")
    UpkeepThread(dlq, "me", wake=lambda: None).end()
    assert accepted == [("here.um1", 1)]


def test_a_store_that_is_away_is_logged_once_and_so_is_its_return(caplog):
    caplog.set_level("INFO")
    away = StoreUnavailable("The dead-letter store does not answer")
    work_off(Store(away, away, away, None, RuntimeError("a bug"), None))
    assert caplog.text.count("and parked retries wait: The dead-letter store") == 1
    assert caplog.text.count("dead letters go to the store again") == 1
    assert "failed unexpectedly" in caplog.text


def test_a_broker_that_is_away_is_logged_separately(caplog):
    caplog.set_level("INFO")
    away = RedriveError("The broker does not answer")
    work_off(Store(away, away, away, None, None))
    assert caplog.text.count("parked retries are not released: The broker does not") == 1
    assert caplog.text.count("parked retries are released again") == 1


def test_a_wrong_clock_is_logged_once(caplog):
    store = Store(StoreUnavailable("away"), *[HELD] * 3)
    store.ahead = timedelta(minutes=10)
    work_off(store)
    assert caplog.text.count("the clock of this machine is 600 seconds behind the database's") == 1


@pytest.mark.parametrize("handlers", [{}, {"closes": object()}])
def test_with_handlers_the_store_is_imported_before_the_pool_forks(handlers):
    dlq, imported = queue(Store(None)), []
    dlq.handlers, dlq.prepare_store = handlers, lambda: imported.append(1)
    UpkeepStep(SimpleNamespace(app=SimpleNamespace(dead_letter_queue=dlq), hostname="w", steps=[]))
    assert len(imported) == len(handlers)


def test_the_step_imports_the_store_starts_its_threads_and_stops_them():
    store = Store(None)
    dlq, threads = queue(store), list[str]()
    dlq.prepare_store = lambda: threads.extend(one.name for one in threading.enumerate())
    worker = SimpleNamespace(
        app=SimpleNamespace(dead_letter_queue=dlq), hostname="w@host", steps=[]
    )
    upkeep = UpkeepStep(worker)
    upkeep.start(worker)
    own = {"dlq-upkeep", "dlq-operations", "dlq-recovery", "dlq-retention"}
    assert threads
    assert own.isdisjoint(threads)
    assert store.done.wait(PATIENCE_S)
    upkeep.stop(worker)
    upkeep.stop(worker)
    names = {one.name for one in threading.enumerate()}
    assert names.isdisjoint(own)


def test_one_without_the_lease_looks_rarely_until_it_may_be_free():
    """Between looks it asks for nothing, and the look does not touch the lease."""
    thread = UpkeepThread(queue(Store()), "me", wake=lambda: None, draw=lambda low, high: high)

    def wait_after(lease_free_in_s, operations=False):
        store = thread._dlq.store = Store()
        store.left = [ToDo(lease_free_in_s=lease_free_in_s, operations=operations)]
        thread.round()
        waits = thread.pause_s()
        assert (store.names, store.done.is_set()) == (["parked.here"], False)
        assert store.doubted == ["here"]
        return waits

    assert wait_after(19.0) == periodic.IDLE_S + chores.TRY_S
    assert wait_after(4.0) == 4.0 + chores.TRY_S
    assert wait_after(19.0, operations=True) == chores.TRY_S


def test_operations_that_are_left_wake_those_who_run_them():
    woken = []
    store = Store(HELD)
    store.left = [
        ToDo(lease_free_in_s=9.0, operations=False), ToDo(lease_free_in_s=9.0, operations=True),
        ToDo(lease_free_in_s=0.0, operations=True), ToDo(lease_free_in_s=0.0, operations=False),
    ]  # fmt: skip
    thread = UpkeepThread(queue(store), "me", wake=lambda: woken.append(len(store.left)))
    for _ in range(4):
        thread.round()
    assert woken == [2, 1]


def test_while_nothing_is_parked_one_look_goes_with_each_prolonging(monkeypatch):
    monkeypatch.setattr(chores, "TRY_S", 0.05)
    store, looks = Store(HELD), []
    monkeypatch.setattr(store.parked, "next_due", lambda place: looks.append(place))
    UpkeepThread(queue(store), "me", wake=lambda: None).round()
    assert looks == ["here"]


def test_each_round_adds_values_of_letters_that_lack_them(monkeypatch):
    monkeypatch.setattr(chores, "TRY_S", 0.0)
    store = Store(HELD)
    store.lacking = [False, True, True]
    UpkeepThread(queue(store), "me", wake=lambda: None).round()
    assert store.lacking == []


def test_a_regrouping_is_looked_for_seldom(monkeypatch):
    monkeypatch.setattr(chores, "TRY_S", 0.0)
    store = Store(*[HELD] * 3)
    thread = UpkeepThread(queue(store), "me", wake=lambda: None)
    for _ in range(3):
        thread.round()
    assert store.looked == 1


def test_adding_values_takes_a_part_of_the_time(monkeypatch):
    monkeypatch.setattr(chores, "TRY_S", 0.0)
    store, ticks = Store(HELD), itertools.count(step=chores.VALUES_S / 4)
    store.lacking = [True] * 100
    UpkeepThread(queue(store), "me", wake=lambda: None, monotonic=lambda: next(ticks)).round()
    assert 0 < 100 - len(store.lacking) < 5


def test_while_something_is_parked_it_is_looked_at_again_and_again(monkeypatch):
    monkeypatch.setattr(chores, "TRY_S", PATIENCE_S)
    store, looks = Store(HELD), []
    thread = UpkeepThread(queue(store), "me", wake=lambda: None)

    def look(place):
        looks.append(place)
        if len(looks) > 3:
            thread.stopping.set()
        return 3600.0

    monkeypatch.setattr(store.parked, "next_due", look)
    thread.round()
    assert len(looks) > 3
