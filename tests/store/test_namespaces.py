"""Two apps in one store see and change only their own rows, on each database."""

from __future__ import annotations

import contextlib
from datetime import timedelta

import pytest
import sqlalchemy as sa
from support.factories import T0, attempt, delivery, letter, operation, parking
from support.stores import redriving
from support.stores.history import edit
from support.stores.rollup_checks import assert_counts_hold

from celery_dlq.archive.segment import letter_key
from celery_dlq.errors import ArchiveError, NamespaceError, UnknownGroup, UnknownOperation
from celery_dlq.model.automation import AutoState
from celery_dlq.model.fingerprint import within
from celery_dlq.model.group import Annotate
from celery_dlq.model.letter import Outcome
from celery_dlq.model.operation import OperationState
from celery_dlq.model.states import State
from celery_dlq.store.base import (
    Edit,
    Expiry,
    Facts,
    Filter,
    HistoryBounds,
    LetterKey,
    NewVerdict,
    OngoingAct,
    Scope,
    SegmentState,
)
from celery_dlq.store.database import tables
from celery_dlq.store.sql import SQLStore

NOW = T0 + timedelta(days=1)
CAUSE = "9c1e0000deadbeef"
ALL = Filter(states=frozenset(State))
FACTS = Facts(letters=1, size=100, sha256="f" * 64, first_failed_at=T0, last_failed_at=NOW)
ACT = OngoingAct(who="ann", act="forget", detail={}, at=NOW)


def died(namespace: str, task_id: str, *attempts, **changes):
    """A letter of an app in ``namespace``."""
    name = within(namespace, CAUSE)
    return letter(task_id, *attempts, namespace=namespace, fingerprint=name, **changes)


@pytest.fixture
def store_of(database_url, store):
    """Gives the store as an app with these namespaces sees it; None for all."""
    with contextlib.ExitStack() as stores:

        def opened(*names, everything=False):
            seen = None if everything else names
            return stores.enter_context(contextlib.closing(SQLStore(database_url, namespaces=seen)))

        yield opened


def fill(store, name: str) -> None:
    """Let an app do everything that leaves rows."""
    store.letters.save(
        [died(name, f"{name}{one}", attempt(minutes=at)) for at, one in enumerate("123456")]
    )
    store.parked.park(
        [parking(f"{name}p", -60, namespace=name, fingerprint=within(name, CAUSE))], now=NOW
    )
    edit(store, f"{name}1", at=T0, body=b"[[18],{},{}]")
    store.closing.discard(Filter(ids=(f"{name}2",)), who="ann", why="obsolete", now=T0)
    wanted = Filter(ids=(f"{name}3", f"{name}4"), until=NOW)
    store.operations.create(operation(f"{name}op", wanted=wanted))
    store.operations.move(f"{name}op", OperationState.RUNNING, who="ann", now=T0)
    redriving.claim(
        store, wanted, token=f"{name}op", lease_until=T0 + timedelta(hours=1), limit=9, now=T0
    )
    redriving.confirm(store, f"{name}op", [f"{name}3"])
    store.letters.save([died(name, f"{name}3", attempt(redrive=1, minutes=8))])
    automatic = operation(f"{name}auto", wanted=Filter(ids=(f"{name}5",)), who="auto:nightly")
    store.operations.create(automatic)
    store.groups.triage(within(name, CAUSE), Annotate(note="known"), who="ann", now=T0)
    lease = store.leases.take("upkeep", holder=name, seconds=3_600)
    store.automations.set_state("nightly", AutoState.PAUSED, who="ann", why="holiday", now=T0)
    store.automations.set_state("nightly", AutoState.ACTIVE, who="ann", now=T0)
    scope = Scope(name="repair", where=Filter(), version="1")
    found = store.automations.candidates(scope, limit=9)
    assert store.automations.queue(lease, scope, found[:1])
    store.automations.hold(lease, "nightly", {f"{name}5": "came back"}, T0)
    store.deliveries.put(delivery(f"{name}1"))
    kept = store.archiving.begin(FACTS, store.leases.take("retention", holder=name, seconds=3_600))
    store.archiving.replace(kept, None, store.leases.take("retention", holder=name, seconds=3_600))
    store.reports.note_round([], removed=1)


def rows_of(store, name: str) -> dict[str, list]:
    """All rows of a namespace, by table."""

    def read(connection):
        return {
            table.name: sorted(
                map(repr, connection.execute(sa.select(table).where(table.c.namespace == name)))
            )
            for table in tables.metadata.sorted_tables
            if "namespace" in table.c
        }

    return store.database.read(read)


@pytest.fixture
def apps(store_of):
    """The store as the apps ``a`` and ``b`` see it; ``a`` has done everything."""
    a, b = store_of("a"), store_of("b")
    fill(a, "a")
    return a, b


def seen_by(store) -> dict[str, object]:
    """What each role of the store shows."""
    fingerprint = within("a", CAUSE)
    measures = store.monitoring.measures()
    return {
        "find": store.letters.find(ALL).letters,
        "get": [store.letters.get(f"a{one}") for one in "123456p"],
        "read": store.letters.read(["a1"])[0],
        "tracebacks": store.letters.read_tracebacks(["a1"]),
        "match": store.letters.match("a"),
        "oldest": store.letters.oldest(Filter()),
        "counts": [
            store.counts.letters(wanted) for wanted in (Filter(), ALL, Filter(task="charge"))
        ],
        "by_task": store.counts.by_task(ALL),
        "names": store.counts.names("release"),
        "by_type": store.counts.by_type(["python.bug"], limit=9),
        "arrivals": store.counts.arrivals(Filter(), since=T0, until=NOW),
        "minutes": store.over_time.by_minute(since=T0),
        "hours": store.over_time.by_hour(since=T0 - timedelta(hours=1)),
        "releases": store.over_time.releases(fingerprint),
        "groups": store.groups.find(Filter(), now=NOW),
        "group": store.groups.get(fingerprint, now=NOW),
        "matching": store.groups.match(fingerprint[:4]),
        "regroupings": store.regroupings.all(),
        "stats": (store.monitoring.stats(NOW).by_state, store.monitoring.stats(NOW).ages),
        "measures": {**vars(measures), "overdue": None},
        "operations": store.operations.find(),
        "operation": store.operations.get("aop"),
        "prefix": store.operations.match("a"),
        "sendings": store.sendings.of_operation("aop").rows,
        "of_letter": store.sendings.of_letter("a3"),
        "causes": store.sendings.last_of_causes(),
        "changes": store.edits.of_letter("a1"),
        "audit": store.audit.find().rows,
        "audit of a letter": store.audit.find(letter="a1").rows,
        "automations": store.automations.statuses(),
        "handlings": store.automations.find().rows,
        "handling": store.automations.count(["repair"])["repair"],
        "unfinished": store.automations.unfinished(),
        "held": store.automations.count_held(),
        "due": store.parked.next_due("here") is None,
        "lines": list(store.archiving.read([f"a{one}" for one in "123456p"], frozenset(State))),
        "segments": store.archiving.segments(),
        "keeping": store.reports.keeping().round,
        "erasing": store.erasing.letters_after(0, limit=9),
        "erasing parked": store.erasing.parked_after(0, limit=9),
        "mentions": store.erasing.mentions(["known", "holiday", "obsolete", "currency"]),
        "expired": store.expiring.find([Expiry(where=Filter(), before=NOW)], None, 99).rows,
        "deliveries": store.deliveries.find("a1", "shop.charge"),
        "to do": store.leases.to_do("upkeep").operations,
        "candidates": store.automations.candidates(Scope(name="x", where=Filter()), limit=9),
    }


@pytest.mark.on_servers
def test_an_app_sees_nothing_of_another_one(apps, store_of):
    a, b = apps
    # The same, in a store in which no app has done anything.
    nothing = seen_by(store_of("c"))
    assert seen_by(b) == nothing
    full = seen_by(a)
    same = [name for name in nothing if full[name] == nothing[name]]
    assert same == []


def attack(b) -> None:
    """Everything that an app may do, with the ids of another app."""
    fingerprint, ids = within("a", CAUSE), tuple(f"a{one}" for one in "123456p")
    every = Filter(ids=ids, states=frozenset(State))
    lease = b.leases.take("upkeep", holder="b", seconds=60)
    for wanted in (every, ALL, Filter(group=fingerprint)):
        assert b.closing.discard(wanted, who="eve", why="x", now=NOW) == 0
        assert b.closing.undiscard(wanted, who="eve", now=NOW) == 0
        assert b.deleting.delete(wanted, who="eve", why="x", now=NOW) == 0
        assert b.parked.make_due(wanted, place="there", who="eve", now=NOW) == 0
        assert b.claims.first_ids(wanted, 9) == []
        taken = b.claims.take(
            operation("bop", wanted=wanted), token="b", lease_until=NOW, limit=9, now=NOW
        )
        assert taken.letters == ()
    before = died("a", "a5").envelope
    changed = Edit(
        task_id="a5", before=before, after=before.with_body(b"[]"), args=[], kwargs={}, diff="-\n+",
        who="eve", at=NOW,
    )  # fmt: skip
    assert not b.edits.save(changed)
    key = LetterKey(task_id="a2", last_failed_at=T0 + timedelta(minutes=1), closed_at=T0)
    assert b.deleting.delete_closed([key], lease, ACT)[0] == 0
    assert b.erasing.delete(ids, lease, ACT) == 0
    b.erasing.erase_notes(ids, [])
    b.erasing.erase_operations(ids)
    verdict = NewVerdict(
        task_id="a5", failed_at=T0 + timedelta(minutes=4), explanation=died("a", "a5").explanation
    )
    assert b.letters.reclassify([verdict], wanted=every, who="eve", now=NOW) == 0
    with pytest.raises(UnknownGroup):
        b.groups.triage(fingerprint, Annotate(note="x"), who="eve", now=NOW)
    with pytest.raises(UnknownOperation):
        b.operations.move("aop", OperationState.CANCELLED, who="eve", now=NOW)
    b.automations.set_state("nightly", AutoState.SUSPENDED, who="eve", now=NOW)
    scope = Scope(name="repair", where=Filter(), version="1")
    assert b.automations.take_due(lease, scope, limit=9, again_s=1) == {}
    b.automations.expire(lease, Scope(name="repair", where=Filter(), version="2"))
    b.values.add(letters=99)
    b.claims.rescue(NOW)
    b.sendings.expire(sent_before=NOW, now=NOW)
    bounds = HistoryBounds(history=NOW, arrivals=NOW, audit=NOW + timedelta(days=999))
    b.history.prune(bounds, limit=999)
    b.parked.prune(older_than_s=0)
    assert b.parked.take_due(lease, "here", limit=9, hold_s=9) == ()
    b.regroupings.begin(recipe="mine", who="eve", why="x")
    b.recorder_reports.prune(older_than_s=0)
    b.reports.note_round([], removed=99)
    assert b.archiving.leftovers(b.leases.take("retention", holder="b", seconds=60)) == []
    outcome = Outcome(
        task_id="a3", redrive=1, succeeded_at=NOW, worker="w", task="shop.charge", namespace="b"
    )
    assert b.letters.record_outcomes([outcome]) == 0
    assert b.sendings.accept([("a3", 1, "forged")]) == [True]


@pytest.mark.on_servers
def test_an_app_changes_nothing_of_another_one(apps):
    a, b = apps
    before = rows_of(a, "a")
    attack(b)
    assert rows_of(a, "a") == before
    assert all(row.namespace == "b" for row in b.audit.find().rows)


@pytest.mark.on_servers
def test_an_app_does_to_its_own_rows_what_it_cannot_do_to_others(apps):
    """The attack would change something if the letters were its own."""
    a, _ = apps
    before = rows_of(a, "a")
    with pytest.raises(AssertionError):
        attack(a)
    assert rows_of(a, "a") != before


@pytest.mark.on_servers
@pytest.mark.parametrize("task", ["shop.charge", "shop.refund"])
def test_the_same_task_id_is_two_letters_in_two_apps(apps, task):
    a, b = apps
    before = rows_of(a, "a")
    failed = died("b", "a1", attempt(minutes=9), task=task)
    b.letters.save([failed])
    b.letters.save([failed])
    (saved,) = b.letters.find(Filter()).letters
    assert saved.task_id.startswith("a1~")
    assert "another message has the id a1" in b.letters.get(saved.task_id).explanation.evidence
    success = Outcome(
        task_id="a1", redrive=0, succeeded_at=NOW, worker="w", task=task, namespace="b",
        digest=digest(failed),
    )  # fmt: skip
    assert b.letters.record_outcomes([success]) == 1
    assert b.letters.get(saved.task_id).state is State.RESOLVED
    assert rows_of(a, "a") == before


def digest(one) -> str:
    from celery_dlq.model.letter import digest_of

    return digest_of(one.envelope.body)


def test_the_same_failure_is_two_groups_and_counts_hold_for_all(store_of):
    a, b = store_of("a"), store_of("b")
    a.letters.save([died("a", f"a{at}") for at in range(5)])
    b.letters.save([died("b", "b1"), died("b", "b2")])
    assert [one.open_count for one in a.groups.find(Filter(), now=NOW)] == [5]
    assert [one.open_count for one in b.groups.find(Filter(), now=NOW)] == [2]
    both = store_of(everything=True)
    assert [(one.namespace, one.open_count) for one in both.groups.find(Filter(), now=NOW)] == [
        ("a", 5), ("b", 2),
    ]  # fmt: skip
    assert both.monitoring.stats(NOW).depth == 7
    assert both.counts.letters(Filter()) == 7
    assert both.counts.letters(Filter(namespace="b")) == 2
    assert_counts_hold(both)


def test_two_apps_hold_the_same_lease_for_themselves(store_of):
    a, b = store_of("a"), store_of("b")
    held = a.leases.take("upkeep", holder="one", seconds=60)
    assert b.leases.take("upkeep", holder="two", seconds=60)
    assert a.leases.take("upkeep", holder="three", seconds=60) is None
    assert a.leases.to_do("upkeep").lease_free_in_s > 0
    assert a.automations.looked(held, "nightly", NOW)
    assert b.automations.statuses() == {}


def test_the_lease_of_an_operation_is_one_for_all(store_of):
    name = operation().lease_name
    assert store_of("a").leases.take(name, holder="one", seconds=60)
    assert store_of("a", "b").leases.take(name, holder="two", seconds=60) is None


def test_two_apps_have_circuits_of_their_own(store_of):
    from dataclasses import replace

    from celery_dlq.model.worker import CircuitState

    def opens(circuit, now):
        return replace(circuit, state=CircuitState.OPEN, opened_at=now)

    a, b = store_of("a"), store_of("b")
    for store in (a, b):
        store.circuits.change({("shop.charge", ""): opens})
    assert [len(store.circuits.read_open().circuits) for store in (a, b)] == [1, 1]
    b.circuits.prune(older_than_s=-60)
    assert [len(store.circuits.read_open().circuits) for store in (a, b)] == [1, 0]


def test_a_line_of_the_archive_keeps_its_namespace_and_comes_back_only_there(apps):
    a, b = apps
    (line,) = a.archiving.read(["a2"])
    assert line["letter"]["namespace"] == "a"
    lease = a.leases.take("retention", holder="a", seconds=60)
    made = a.archiving.begin(FACTS, lease)
    assert a.archiving.commit(made, [letter_key(line)], lease, ACT)[0] == 1
    with pytest.raises(
        ArchiveError,
        match="Letters of another namespace are restored by an app with that dlq_namespace",
    ):
        b.archiving.restore([line], who="eve", reopen=True, origin="", now=NOW)
    back = a.archiving.restore([line], who="ann", reopen=True, origin=made.id, now=NOW)
    assert back.restored == ("a2",)
    assert a.letters.get("a2").namespace == "a"
    assert [one.state for one in a.archiving.segments()] == [
        SegmentState.LEFTOVER, SegmentState.OWN,
    ]  # fmt: skip


@pytest.mark.on_servers
def test_a_process_that_sees_several_shows_all_of_them_in_one_order(apps, store_of):
    _, b = apps
    b.letters.save([died("b", f"b{at}", attempt(minutes=at + 0.5)) for at in range(3)])
    for both in (store_of("a", "b"), store_of(everything=True)):
        first = both.letters.find(ALL, limit=3)
        rest = both.letters.find(ALL, limit=99, after=first.next)
        found = [*first.letters, *rest.letters]
        moments = [one.last_failed_at for one in found]
        assert moments == sorted(moments, reverse=True)
        assert {one.task_id for one in found} >= {"a1", "b0", "ap"}
        assert {one.namespace for one in found} == {"a", "b"}
        only = both.letters.find(Filter(namespace="b")).letters
        assert [one.task_id for one in only] == ["b2", "b1", "b0"]
    assert store_of("a", "c").counts.letters(Filter(namespace="b")) == 0


@pytest.mark.on_servers
def test_acts_of_such_a_process_belong_to_the_namespace_of_the_letters(apps, store_of):
    a, b = apps
    b.letters.save([died("b", f"b{at}") for at in range(4)])
    both = store_of(everything=True)
    with pytest.raises(NamespaceError, match="name it with --namespace"):
        both.closing.discard(Filter(), who="ops", why="x", now=NOW)
    assert both.closing.discard(Filter(ids=("b0",)), who="ops", why="x", now=NOW) == 1
    assert both.closing.discard(Filter(namespace="b", task="charge"), who="ops", why="x", now=NOW)
    assert both.closing.undiscard(Filter(ids=("b1", "b2")), who="ops", now=NOW) == 2
    both.groups.triage(within("b", CAUSE), Annotate(note="x"), who="ops", now=NOW)
    wanted = Filter(ids=("b1",))
    both.operations.create(operation("both", wanted=wanted))
    edit(both, "b2", at=T0, body=b"[[18],{},{}]")
    both.operations.move("both", OperationState.RUNNING, who="ops", now=NOW)
    assert b.operations.get("both").namespace == "b"
    taken = both.claims.take(
        operation("both", wanted=Filter()), token="t", lease_until=NOW, limit=99, now=T0
    )
    assert {one.task_id for one in taken.letters} == {"b1", "b2"}
    assert {row.act for row in b.audit.find().rows} >= {
        "discard", "undiscard", "note", "redrive", "edit",
    }  # fmt: skip
    assert not [row for row in a.audit.find().rows if row.who == "ops"]
    assert a.operations.get("both") is None


def test_a_process_that_sees_several_does_not_do_the_work_of_one(store_of):
    both = store_of("a", "b")
    with pytest.raises(NamespaceError):
        both.automations.set_state("nightly", AutoState.PAUSED, who="ops", now=NOW)
    with pytest.raises(NamespaceError):
        both.regroupings.begin(recipe="", who="ops", why="x")
    with pytest.raises(NamespaceError):
        both.reports.note_round([], removed=1)
