"""Repair handlers get letters and end with verdicts, on each database."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta

import pytest
from sqlalchemy import update
from support.factories import T0, attempt, envelope, letter, operation
from support.stores.history import all_before

from celery_dlq.model.handling import (
    TRIES,
    Discard,
    Escalate,
    HandlingState,
    Leave,
    Redrive,
    Ticket,
    TicketKind,
)
from celery_dlq.model.states import State
from celery_dlq.store.base import Edit, Filter, Scope
from celery_dlq.store.database import tables

GROUP = "9c1e0000deadbeef"
LATER = T0 + timedelta(days=2)

pytestmark = pytest.mark.usefixtures("counts_hold_in_the_end")


def scope(name="repair", version="1", *, once_per_group=False, **where):
    return Scope(name=name, version=version, where=Filter(**where), once_per_group=once_per_group)


@pytest.fixture
def lease(store):
    return store.leases.take("handlers", holder="me", seconds=600)


@pytest.fixture
def choose(store, lease):
    def choose(this, *earlier, per_hour=1_000, most=1_000, since=None, lease=lease):
        """Queue letters as the engine does; returns how many, or None if the handler may not get any."""
        room = store.automations.room(this.name, per_hour=per_hour, most=most)
        found = room and store.automations.candidates(this, earlier, limit=room, since=since)
        is_queued = found == [] or (room and store.automations.queue(lease, this, found))
        return len(found) if is_queued else None

    return choose


@pytest.fixture
def take(store, lease):
    """The ids of the handlings whose messages are to be sent."""
    return lambda this, again_s=300.0: [
        *store.automations.take_due(lease, this, limit=1_000, again_s=again_s)
    ]


def queued_letters(store, name="repair"):
    rows = store.automations.find(name=name, states=frozenset({HandlingState.QUEUED})).rows
    return sorted(row.task_id for row in rows)


@pytest.fixture
def start(store, choose, take):
    """Starts the one handling of a handler; returns it, and the letter that the handler sees."""

    def start(this=None, within_s=60.0):
        this = this or scope()
        choose(this)
        [handling_id] = take(this)
        started = store.automations.start(handling_id, worker="w@host", within_s=within_s)
        return started, store.letters.get(started.task_id)

    return start


def let_pass(store, **columns):
    """Set times of all handlings, as if time had passed."""
    change = update(tables.handling).values(columns)
    store.database.write(lambda connection: connection.execute(change))


def edit_of(seen, who="auto:repair"):
    after = replace(seen.envelope, body=b'[[17], {"currency": "EUR"}, {}]')
    return Edit(
        task_id=seen.task_id, before=seen.envelope, after=after, args=[17],
        kwargs={"currency": "EUR"}, diff='- kwargs.currency = "EUX"\n+ kwargs.currency = "EUR"',
        who=who, at=T0 + timedelta(minutes=9),
    )  # fmt: skip


# -- Choosing -------------------------------------------------------------------------------------


def test_dead_letters_of_the_filter_are_queued_once(store, choose):
    store.letters.save([letter("a"), letter("b", task="shop.mail"), letter("c")])
    store.closing.discard(Filter(ids=("c",)), who="ann", why="no", now=T0)
    assert choose(scope(task="charge")) == 1
    assert queued_letters(store) == ["a"]
    assert choose(scope(task="charge")) == 0


def test_a_filter_of_an_earlier_handler_leaves_letters_without_a_root(store, choose):
    store.letters.save([letter("a", root_id="r"), letter("b", root_id=None), letter("c")])
    assert choose(scope(), scope("earlier", root="r")) == 2
    assert queued_letters(store) == ["b", "c"]


def test_a_letter_that_fails_again_is_queued_again(store, choose):
    store.letters.save([letter("a")])
    assert choose(scope()) == 1
    store.letters.save([letter("a", attempt(), attempt(redrive=1, minutes=5), redrive_count=1)])
    assert choose(scope()) == 1


def test_another_version_of_a_handler_gets_its_letters_again(store, choose):
    store.letters.save([letter("a")])
    assert [choose(scope()), choose(scope(version="2")), choose(scope(version="2"))] == [1, 1, 0]


def test_the_handler_registered_first_gets_a_letter(store, choose):
    store.letters.save([letter("a"), letter("b", task="shop.mail")])
    first, second = scope("first", task="charge"), scope("second")
    assert choose(second, first) == 1
    assert queued_letters(store, "second") == ["b"]


def test_a_letter_that_was_left_goes_to_the_next_handler(store, choose, start):
    store.letters.save([letter("a")])
    first, second = scope("first"), scope("second")
    started, seen = start(first)
    assert choose(second, first) == 0
    assert store.automations.end(started, seen, Leave(), detail={}) is HandlingState.DONE
    assert choose(second, first) == 1
    assert choose(first) == 0


def test_a_handler_for_groups_gets_one_letter_of_each(store, choose, start):
    other = "aaaa0000deadbeef"
    store.letters.save([letter("a"), letter("b"), letter("c", fingerprint=other, task="shop.mail")])
    each = scope(once_per_group=True)
    assert choose(each) == 2
    assert queued_letters(store) == ["a", "c"]
    assert choose(each) == 0


def test_a_group_is_handled_again_if_the_handler_failed(store, choose, start):
    store.letters.save([letter("a")])
    each = scope(once_per_group=True)
    started, _ = start(each)
    store.letters.save([letter("b", attempt(minutes=1))])
    assert choose(each) == 0
    store.automations.fail(started, "it raised", again_s=None)
    assert choose(each) == 1
    assert queued_letters(store) == ["b"]


def test_a_group_that_failed_again_after_it_was_resolved_is_handled_again(store, choose, start):
    store.letters.save([letter("a")])
    each = scope(once_per_group=True)
    started, seen = start(each)
    store.automations.end(started, seen, Ticket("https://t/1"), detail={})
    store.letters.save([letter("b", attempt(minutes=1))])
    assert choose(each) == 0
    now = store.now()
    regress = update(tables.group).values(regressed_at=now + timedelta(seconds=1))
    store.database.write(lambda connection: connection.execute(regress))
    assert choose(each) == 1


def test_no_more_letters_are_queued_than_an_hour_and_the_queue_allow(store, choose, take):
    store.letters.save([letter(f"a{number}", attempt(minutes=number)) for number in range(5)])
    assert choose(scope(), per_hour=2) == 2
    assert queued_letters(store) == ["a0", "a1"], "the oldest come first"
    assert choose(scope(), per_hour=2) is None
    assert choose(scope(), most=3) == 1
    assert choose(scope(), most=3) is None
    let_pass(store, queued_at=store.now() - timedelta(hours=2), state="done")
    assert choose(scope(), per_hour=1) == 1


def test_calls_that_are_repeated_count_within_the_hour(store, choose, take):
    store.letters.save([letter("a"), letter("b", attempt(minutes=1))])
    choose(scope(), most=1)
    let_pass(store, tries=2)
    assert choose(scope(), per_hour=3) is None
    assert choose(scope(), per_hour=4) == 1


def test_a_look_at_recent_failures_leaves_out_older_ones(store, choose):
    store.letters.save([letter("a"), letter("b", attempt(minutes=10))])
    assert choose(scope(), since=T0 + timedelta(minutes=10)) == 1
    assert queued_letters(store) == ["b"]


def test_without_the_lease_nothing_is_done(store, choose, take, lease):
    store.letters.save([letter("a")])
    choose(scope())
    store.leases.give_up(lease)
    store.leases.take("handlers", holder="other", seconds=600)
    assert choose(scope(version="2")) is None
    assert take(scope()) == []
    let_pass(store, state="running", tries=TRIES, due_at=T0)
    assert store.automations.expire(lease, scope()) == 0
    let_pass(store, state="done", verdict="redrive", due_at=T0)
    assert store.automations.to_redrive(lease, "repair", limit=9) == []
    assert not store.automations.redrive(lease, [1], operation())
    assert store.operations.find() == []


# -- Sending and starting -------------------------------------------------------------------------


def test_a_message_is_sent_again_if_no_worker_starts_it_and_later_each_time(store, choose, take):
    store.letters.save([letter("a")])
    choose(scope())
    [handling_id] = take(scope())
    assert take(scope()) == []
    let_pass(store, due_at=T0)
    before = store.now()
    assert take(scope(), again_s=100.0) == [handling_id]
    row = _row(store, handling_id)
    assert row["sends"] == 2
    # The database's clock, and what this process knows of it, differ by milliseconds.
    assert row["due_at"] - before > timedelta(seconds=199)


def test_it_is_known_how_often_a_message_was_sent_in_vain(store, choose, lease):
    store.letters.save([letter("a")])
    choose(scope())
    for sends in range(3):
        [found] = store.automations.take_due(lease, scope(), limit=9, again_s=-1).values()
        assert found == sends


def test_what_could_not_be_sent_is_due_soon(store, choose, take):
    store.letters.save([letter("a")])
    choose(scope())
    [handling_id] = take(scope())
    store.automations.put_off([handling_id], delay_s=0)
    assert take(scope()) == [handling_id]


@pytest.mark.on_servers
def test_one_of_two_copies_of_a_message_is_started(store, choose, take):
    store.letters.save([letter("a")])
    choose(scope())
    [handling_id] = take(scope())
    with ThreadPoolExecutor(2) as pool:
        started = list(
            pool.map(
                lambda worker: store.automations.start(handling_id, worker=worker, within_s=60),
                ["v", "w"],
            )
        )
    [one] = [found for found in started if found is not None]
    assert (one.task_id, one.tries, one.state) == ("a", 1, HandlingState.RUNNING)
    assert store.automations.start(-1, worker="w", within_s=60) is None


@pytest.mark.parametrize("change", ["discarded", "failed again"])
def test_a_letter_that_has_changed_is_not_started(store, choose, take, change):
    store.letters.save([letter("a")])
    choose(scope())
    [handling_id] = take(scope())
    if change == "discarded":
        store.closing.discard(Filter(), who="ann", why="no", now=T0)
    else:
        store.letters.save([letter("a", attempt(), attempt(redrive=1, minutes=5), redrive_count=1)])
    assert store.automations.start(handling_id, worker="w", within_s=60) is None
    assert store.automations.get(handling_id).state is HandlingState.STALE


def test_a_call_whose_worker_died_is_repeated_and_then_given_up(store, start, take, lease):
    store.letters.save([letter("a")])
    started, _ = start(within_s=-1)
    for tries in range(2, TRIES + 1):
        assert store.automations.expire(lease, scope()) == 0
        [handling_id] = take(scope())
        started = store.automations.start(handling_id, worker="w", within_s=-1)
        assert started.tries == tries
    assert store.automations.expire(lease, scope()) == 1
    found = store.automations.get(started.id)
    assert (found.state, found.tries) == (HandlingState.FAILED, TRIES)
    assert "its worker was killed" in found.error
    assert store.automations.expire(lease, scope()) == 0


def test_a_call_that_still_runs_is_not_overdue(store, start, lease, take):
    store.letters.save([letter("a")])
    start(within_s=60)
    assert store.automations.expire(lease, scope()) == 0
    assert take(scope()) == []


def test_handlings_of_an_earlier_version_end(store, choose, lease):
    store.letters.save([letter("a")])
    choose(scope())
    assert store.automations.expire(lease, scope(version="2")) == 0
    [found] = store.automations.find().rows
    assert (found.state, found.error) == (
        HandlingState.STALE, "the handler has another version now",
    )  # fmt: skip


# -- Verdicts -------------------------------------------------------------------------------------


@pytest.mark.clear("the reason is kept with the handling only")
def test_a_letter_is_discarded_with_the_handler_in_the_audit(store, start):
    store.letters.save([letter("a"), letter("b", task="shop.mail")])
    started, seen = start(scope(task="charge"))
    verdict = Discard("a duplicate")
    ended = store.automations.end(started, seen, verdict, detail={"reason": "a duplicate"})
    assert ended is HandlingState.DONE
    found = store.letters.get("a")
    assert (found.state, found.closed_by, found.closed_reason) == (
        State.DISCARDED, "auto:repair", "a duplicate",
    )  # fmt: skip
    assert store.letters.get("b").state is State.DEAD
    [act] = store.audit.find(letter="a").rows
    assert (act.act, act.who, act.why, act.count) == (
        "discard", "auto:repair", "a duplicate", 1,
    )  # fmt: skip
    [row] = store.automations.find(letter_id="a").rows
    assert (row.verdict, row.detail) == ("discard", {"reason": "a duplicate"})
    assert row.ended_at is not None


def test_an_edit_is_a_revision_and_its_operation_is_made_once(store, start, lease):
    store.letters.save([letter("a")])
    started, seen = start()
    edit = edit_of(seen)
    ended = store.automations.end(
        started, seen, Redrive(kwargs={"currency": "EUR"}), edit=edit, detail={"change": edit.diff}
    )
    assert ended is HandlingState.DONE
    assert store.letters.get("a").envelope == edit.after
    [change] = store.edits.of_letter("a")
    assert (change.who, change.before) == ("auto:repair", seen.envelope)
    [due] = store.automations.to_redrive(lease, "repair", limit=9)
    made = operation(wanted=Filter(ids=("a",)), who="auto:repair", detached=True)
    assert store.automations.redrive(lease, [due.id], made)
    assert store.automations.to_redrive(lease, "repair", limit=9) == []
    assert store.automations.get(due.id).operation == made.id
    assert [one.id for one in store.operations.find()] == [made.id]


def test_a_letter_that_changed_after_the_verdict_is_not_redriven(store, start, lease):
    store.letters.save([letter("a")])
    started, seen = start()
    store.automations.end(started, seen, Redrive(), detail={})
    store.closing.discard(Filter(), who="ann", why="no", now=T0)
    assert store.automations.to_redrive(lease, "repair", limit=9) == []
    assert store.automations.get(started.id).state is HandlingState.STALE


def _discard(store):
    store.closing.discard(Filter(), who="ann", why="mine", now=T0)


def _fail_again(store):
    failed = letter("a", attempt(), attempt(redrive=1, minutes=5), redrive_count=1)
    store.letters.save([failed])


def _edit(store):
    assert store.edits.save(replace(edit_of(store.letters.get("a")), who="ann"))


def _claim(store):
    store.claims.take(operation(), token="t", lease_until=LATER, limit=1, now=T0)


@pytest.mark.parametrize("verdict", [Discard("no"), Redrive(args=[18])])
@pytest.mark.parametrize("act", [_discard, _fail_again, _edit, _claim])
def test_a_verdict_on_a_letter_that_has_changed_does_nothing(store, start, act, verdict):
    store.letters.save([letter("a")])
    started, seen = start()
    act(store)
    before, acts = store.letters.get("a"), store.audit.find().rows
    after = replace(seen.envelope, body=b"[[18], {}, {}]")
    edit = replace(edit_of(seen), after=after) if isinstance(verdict, Redrive) else None
    ended = store.automations.end(started, seen, verdict, edit=edit, detail={})
    assert ended is HandlingState.STALE
    assert store.letters.get("a") == before
    assert store.audit.find().rows == acts
    found = store.automations.get(started.id)
    assert (found.state, found.verdict) == (HandlingState.STALE, "")


def test_a_verdict_that_comes_after_its_call_was_given_up_does_nothing(store, start, take, lease):
    store.letters.save([letter("a")])
    late, seen = start(within_s=-1)
    store.automations.expire(lease, scope())
    assert store.automations.end(late, seen, Discard("no"), detail={}) is None
    [handling_id] = take(scope())
    second = store.automations.start(handling_id, worker="w", within_s=60)
    assert store.automations.end(late, seen, Discard("no"), detail={}) is None
    store.automations.fail(late, "late", again_s=None)
    assert store.letters.get("a").state is State.DEAD
    assert store.automations.get(handling_id).state is HandlingState.RUNNING
    assert store.automations.end(second, seen, Discard("no"), detail={}) is HandlingState.DONE


def test_ended_twice_it_is_done_once(store, start):
    store.letters.save([letter("a")])
    started, seen = start()
    assert store.automations.end(started, seen, Discard("no"), detail={}) is HandlingState.DONE
    assert store.automations.end(started, seen, Discard("no"), detail={}) is None
    assert len(store.audit.find().rows) == 1


def test_a_handler_that_raised_is_called_again_and_then_given_up(store, start, take):
    store.letters.save([letter("a")])
    started, _ = start()
    for _ in range(TRIES - 1):
        store.automations.fail(started, "it raised KeyError: 'a'", again_s=0)
        assert store.automations.get(started.id).error == "it raised KeyError: 'a'"
        [handling_id] = take(scope())
        started = store.automations.start(handling_id, worker="w", within_s=60)
    store.automations.fail(started, "it raised again", again_s=0)
    found = store.automations.get(started.id)
    assert (found.state, found.error) == (HandlingState.FAILED, "it raised again")
    assert take(scope()) == []


# -- Tickets --------------------------------------------------------------------------------------


def test_a_group_has_one_ticket_and_one_escalation(store, start):
    store.letters.save([letter("a")])
    started, seen = start(scope("ticketing", once_per_group=True))
    store.automations.end(started, seen, Ticket("https://t/1"), detail={"url": "https://t/1"})
    started, seen = start(scope("paging", once_per_group=True))
    store.automations.end(started, seen, Escalate("ops", "no stock"), detail={})
    started, seen = start(scope("ticketing", "2", once_per_group=True))
    store.automations.end(started, seen, Ticket("https://t/2"), detail={})
    found = store.tickets.of_groups([GROUP, "none"])
    assert list(found) == [GROUP]
    ticket, escalation = found[GROUP]
    assert (ticket.kind, ticket.url, ticket.handler) == (
        TicketKind.TICKET, "https://t/2", "ticketing",
    )  # fmt: skip
    assert (escalation.kind, escalation.to, escalation.why) == (
        TicketKind.ESCALATION, "ops", "no stock",
    )  # fmt: skip
    assert [act.act for act in store.audit.find(letter="a").rows] == [
        "ticket", "escalate", "ticket",
    ]  # fmt: skip
    assert store.tickets.of_groups([]) == {}


@pytest.mark.parametrize("act", [_discard, _fail_again, _edit])
def test_a_ticket_is_kept_even_if_the_letter_has_changed(store, start, act):
    """It was already made, and belongs to the group."""
    store.letters.save([letter("a")])
    started, seen = start(scope(once_per_group=True))
    act(store)
    ended = store.automations.end(started, seen, Ticket("https://t/1"), detail={})
    assert ended is HandlingState.DONE
    assert store.tickets.of_groups([GROUP])[GROUP][0].url == "https://t/1"


# -- Reading --------------------------------------------------------------------------------------


def test_handlings_are_listed_page_by_page_and_counted(store, choose):
    store.letters.save([letter(name) for name in "abc"])
    choose(scope())
    choose(scope("other"), most=1)
    page = store.automations.find(limit=3)
    assert [row.name for row in page.rows] == ["other", "repair", "repair"]
    rest = store.automations.find(limit=3, after=int(page.next))
    assert (len(rest.rows), rest.next) == (1, None)
    assert store.automations.count(["repair", "other", "none"]) == {
        "repair": {HandlingState.QUEUED: 3}, "other": {HandlingState.QUEUED: 1}, "none": {},
    }  # fmt: skip
    found = store.automations.candidates(scope("third"), limit=2)
    assert [one.task_id for one in found] == ["a", "b"]


def test_monitoring_counts_what_waits_and_failed_and_tickets_of_open_groups(store, start):
    store.letters.save([letter("a"), letter("b", task="shop.mail", fingerprint="aaaa")])
    started, seen = start(scope("ticketing", task="charge", once_per_group=True))
    store.automations.end(started, seen, Ticket("https://t/1"), detail={})
    started, _ = start(scope("repair", task="charge"))
    store.automations.fail(started, "it raised", again_s=None)
    start(scope("slow", task="mail"))
    found = store.monitoring.measures()
    assert found.handlings == {
        ("repair", HandlingState.FAILED): 1, ("slow", HandlingState.RUNNING): 1,
    }  # fmt: skip
    assert found.tickets == {TicketKind.TICKET: 1, TicketKind.ESCALATION: 0}
    store.closing.discard(Filter(task="charge"), who="ann", why="no", now=T0)
    assert store.monitoring.measures().tickets[TicketKind.TICKET] == 0


def test_ids_of_any_length_are_handled(store, start):
    long = "x" * 400
    store.letters.save([letter(long, envelope=envelope(long))])
    started, seen = start()
    assert store.automations.end(started, seen, Discard("no"), detail={}) is HandlingState.DONE
    assert len(store.automations.find(letter_id=long).rows) == 1


def test_old_handlings_of_closed_letters_are_forgotten(store, start):
    store.letters.save([letter("a"), letter("b", task="shop.mail")])
    for task in ("charge", "mail"):
        started, seen = start(scope(task, task=task))
        store.automations.end(started, seen, Leave(), detail={})
    store.closing.discard(Filter(ids=("a",)), who="ann", why="no", now=T0)
    let_pass(store, ended_at=T0 - timedelta(days=2))
    store.history.prune(all_before(T0 - timedelta(days=1)), limit=9)
    assert [row.task_id for row in store.automations.find().rows] == ["b"]


def _row(store, handling_id):
    table = tables.handling
    return store.database.read(
        lambda connection: (
            connection.execute(table.select().where(table.c.id == handling_id)).mappings().one()
        )
    )
