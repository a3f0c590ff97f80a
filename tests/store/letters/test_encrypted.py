"""A store with keys keeps no content in clear, and does all that a store without keys does. Without the keys,
and after an attack on its tables, it shows what is left, and says why."""

from __future__ import annotations

import contextlib
import json
from dataclasses import replace
from datetime import datetime, timedelta, timezone

import pytest
import sqlalchemy as sa
from support.factories import T0, attempt, delivery, envelope, letter, operation, parking
from support.stores import redriving
from support.stores.history import edit
from support.stores.rollup_checks import assert_counts_hold

from celery_dlq.archive.segment import letter_key
from celery_dlq.base.sealing import Keyring, person_in
from celery_dlq.errors import ContentsSealed, FilterError, RecordRefused, RepairError
from celery_dlq.model.automation import AutoState
from celery_dlq.model.fingerprint import Grounds
from celery_dlq.model.handling import Discard, Escalate
from celery_dlq.model.letter import Outcome
from celery_dlq.model.operation import OperationState, Orders, Repair
from celery_dlq.model.states import State
from celery_dlq.redrive.letter.edit import text_to_edit
from celery_dlq.store.archiving import envelopes_of
from celery_dlq.store.base import Argument, Drop, Edit, Facts, Filter, OngoingAct, Scope
from celery_dlq.store.database import tables
from celery_dlq.store.sql import SQLStore

OLD, NEW = Keyring({"old": b"o" * 32}), Keyring({"new": b"n" * 32, "old": b"o" * 32})
LATER = T0 + timedelta(days=365)
FACTS = Facts(letters=1, size=1, sha256="f" * 64, first_failed_at=T0, last_failed_at=T0)
CLOSED = Filter(states=frozenset({State.DISCARDED}))

pytestmark = pytest.mark.on_servers


@pytest.fixture
def opened(store, database_url):
    """Opens the store with a ring, or with none."""
    with contextlib.ExitStack() as stack:

        def opened(ring=NEW):
            return stack.enter_context(contextlib.closing(SQLStore(database_url, ring=ring)))

        yield opened
    if not store.counts.letters(Filter(states=frozenset({State.PARKED}))):
        assert_counts_hold(store)


@pytest.fixture
def sealed(opened):
    return opened()


def write(store, statement):
    store.database.write(lambda connection: connection.execute(statement))


def read(store, statement):
    return store.database.read(lambda connection: connection.execute(statement).mappings().all())


def column(store, of, task_id="a"):
    """A value of a letter as it is stored."""
    table = of.table
    of_it = sa.select(of).where(tables.letter.c.task_id == task_id)
    if table is tables.content:
        of_it = of_it.join(tables.letter, tables.letter.c.id == tables.content.c.id)
    return read(store, of_it)[0][of.name]


def put(store, of, value, task_id="a"):
    number = sa.select(tables.letter.c.id).where(tables.letter.c.task_id == task_id)
    number = read(store, number)[0]["id"]
    write(store, sa.update(of.table).where(of.table.c.id == number).values({of: value}))


def take(store, **wanted):
    now = T0 + timedelta(minutes=30)
    claimed = redriving.claim(
        store, Filter(**wanted), token="t", lease_until=LATER, limit=9, now=now
    )
    return {one.task_id: one for one in claimed.letters}


# -- What a store does ------------------------------------------------------------------------------


def test_a_letter_is_saved_found_shown_and_claimed(sealed):
    given = letter(
        "a", attempt(message="first"), attempt(2, minutes=1), log="line", message="no € \udc80",
        grounds=Grounds(frames=("shop:charge",)), envelope=envelope("a", body=b"\x00\xff" * 40_000),
    )  # fmt: skip
    sealed.letters.save([given, letter("b", envelope=envelope("b", body=b""))])
    shown = sealed.letters.get("a")
    assert shown.with_(attempt_count=0, message=given.message, sealed_by="") == given
    assert shown.unreadable == ""
    assert [one.message for one in sealed.letters.find(Filter()).letters] == [
        shown.message, "bad currency",
    ]  # fmt: skip
    [there], _ = sealed.letters.read(["a"])
    assert there.envelope == given.envelope
    assert sealed.letters.read_tracebacks(["a"]) == {"a": given.traceback}
    claimed = take(sealed)
    assert [claimed[one].envelope.body for one in "ab"] == [given.envelope.body, b""]
    assert not claimed["a"].unreadable


def test_a_redrive_ends_and_its_failure_is_merged(sealed):
    sealed.letters.save([letter("a"), letter("b")])
    sealed.operations.create(operation("t"))
    take(sealed)
    redriving.end(sealed, "t", "ab")
    sealed.letters.save([letter("a", attempt(), attempt(redrive=1, minutes=40), message="again")])
    sealed.letters.record_outcomes([
        Outcome(task_id="b", redrive=1, succeeded_at=LATER, worker="w", task="shop.charge")
    ])  # fmt: skip
    found = sealed.letters.get("a")
    assert (found.state, found.message, found.args) == (State.DEAD, "again", [17])
    assert found.envelope == letter("a").envelope
    assert [one.message for one in found.attempts] == ["bad currency"] * 2
    [sending] = sealed.sendings.of_letter("a")
    assert sending.why == "ValueError: again"
    assert sealed.letters.get("b").state is State.RESOLVED
    [group] = sealed.groups.find(Filter(), now=LATER)
    assert group.message == "again"


def test_a_message_with_the_id_of_another_one_is_told_by_its_body(sealed):
    other = envelope("a", body=b"[[18], {}, {}]")
    sealed.letters.save([letter("a")])
    sealed.letters.save([letter("a", attempt(minutes=1), envelope=other)])
    sealed.letters.save([letter("a", attempt(minutes=2), message="newer")])
    assert sealed.counts.letters(Filter()) == 2
    assert sealed.letters.get("a").message == "newer"


def test_an_edit_is_made_and_its_history_kept(sealed):
    sealed.letters.save([letter("a")])
    edit(sealed, "a", at=LATER, body=b"[[],{},{}]")
    assert sealed.letters.get("a").envelope.body == b"[[],{},{}]"
    [change] = sealed.edits.of_letter("a")
    assert (change.diff, change.before) == ("-\n+", letter("a").envelope)
    [act] = sealed.audit.find().rows
    assert act.detail == {"letter": "a", "changed": "-\n+"}


def test_a_retry_is_parked_released_and_discarded(sealed):
    now = datetime.now(timezone.utc)
    given = [parking("a", -1), parking("b", 90, message="later", subject="jo")]
    assert sealed.parked.park(given, now=now) == 2
    assert sealed.letters.get("b").message == "later"
    held = sealed.leases.take("upkeep", holder="one", seconds=60)
    [release] = sealed.parked.take_due(held, "here", limit=9, hold_s=60)
    assert (release.copy, release.letter.envelope) == (1, letter("a").envelope)
    assert sealed.parked.accept([(release.parking, 1)]) == [True]
    wanted = Filter(states=frozenset({State.PARKED}))
    assert sealed.closing.discard(wanted, who="ann", why="", now=now) == 1
    found = sealed.letters.get("b")
    assert (found.state, found.message) == (State.DISCARDED, "later")
    assert column(sealed, tables.letter.c.sealed_by, "b").startswith("@")


def test_an_archived_letter_keeps_its_seals_and_is_restored_with_the_key(sealed, opened):
    sealed.letters.save([letter("a"), letter("b", subject="jo")])
    edit(sealed, "a", at=LATER)
    sealed.closing.discard(Filter(), who="ann", why="", now=LATER)
    before = sealed.letters.get("a")
    blind = opened(None)
    lines = [json.loads(json.dumps(line)) for line in blind.archiving.read(["a", "b"])]
    assert "EUX" not in json.dumps(lines)
    held = blind.leases.take("retention", holder="one", seconds=60)
    act = OngoingAct(who="r", act="archive", detail={}, at=LATER)
    segment = blind.archiving.begin(FACTS, held)
    assert blind.archiving.commit(segment, [*map(letter_key, lines)], held, act)[0] == 2
    assert [one.body for one in envelopes_of(sealed.archiving.opened(lines[0]))] == [
        b"[[],{},{}]", letter().envelope.body,
    ]  # fmt: skip
    with pytest.raises(ContentsSealed, match="set dlq_encryption_keys"):
        blind.archiving.restore(lines, who="a", reopen=True, origin=segment.id, now=LATER)
    sealed.archiving.restore(lines, who="a", reopen=True, origin=segment.id, now=LATER)
    back = sealed.letters.get("a")
    assert (back.envelope, back.kwargs, back.attempts) == (
        before.envelope, before.kwargs, before.attempts,
    )  # fmt: skip
    assert sealed.edits.of_letter("a")[0].diff == "-\n+"
    assert column(sealed, tables.letter.c.sealed_by, "b").startswith("@")


def test_values_are_found_and_parts_are_not_looked_for(sealed):
    sealed.letters.save([letter("a")])
    assert sealed.counts.letters(Filter(values=("EUX",))) == 1
    for states in ({State.DEAD}, {State.PARKED}):
        with pytest.raises(FilterError, match="--value or --arg"):
            sealed.letters.find(Filter(search="EUX", states=frozenset(states)))


# -- Keys -------------------------------------------------------------------------------------------


def test_a_letter_in_clear_becomes_sealed_as_a_whole_when_it_fails_again(store, opened):
    plain = opened(None)
    plain.letters.save([letter("a"), letter("b")])
    sealed = opened()
    sealed.letters.save([letter("a", attempt(redrive=1, minutes=5), redrive_count=1)])
    edit(sealed, "b", at=LATER)
    for name in "ab":
        assert sealed.letters.get(name).traceback == letter().traceback
        assert opened(None).letters.get(name).unreadable
        for of in (tables.content.c.headers, tables.content.c.args, tables.content.c.traceback):
            assert column(sealed, of, name).startswith("dlq-sealed:")
    assert sealed.letters.get("a").envelope == letter("a").envelope
    assert sealed.counts.letters(Filter(args=(Argument.read("currency=EUX"),))) == 1


def test_a_letter_keeps_its_key_when_it_fails_again_under_another_one(opened):
    opened(OLD).letters.save([letter("a")])
    sealed = opened(NEW)
    sealed.letters.save([letter("a", attempt(redrive=1, minutes=5), message="new")])
    assert (sealed.letters.get("a").message, sealed.letters.get("a").args) == ("new", [17])
    assert column(sealed, tables.letter.c.sealed_by) == OLD.label
    assert opened(Keyring({"new": b"n" * 32})).letters.get("a").unreadable


def test_everything_of_a_person_is_read_with_the_person_s_key(opened):
    sealed = opened()
    sealed.letters.save([letter("a", subject="jo"), letter("b")])
    edit(sealed, "a", at=LATER)
    take(sealed, ids=("a",))
    sealed.claims.skip("t", "t", {"a": "too old for jo"}, now=LATER)
    assert sealed.sendings.of_letter("a")[0].why == "too old for jo"
    write(sealed, sa.delete(tables.key).where(tables.key.c.id != "hashing"))
    found = sealed.letters.get("a")
    assert "destroyed" in found.unreadable
    assert (found.message, found.args, found.envelope.body) == ("", None, b"")
    assert [one.message for one in found.attempts] == [""]
    assert sealed.edits.of_letter("a")[0].diff == sealed.sendings.of_letter("a")[0].why == ""
    # What is written later, without the name, is readable by the ring.
    sealed.letters.save([letter("a", attempt(redrive=1, minutes=5))])
    assert not sealed.letters.get("b").unreadable


@pytest.mark.parametrize("ring", [None, Keyring({"other": b"x" * 32})])
def test_without_the_key_lists_work_and_contents_say_why_not(opened, ring):
    sealed = opened(OLD)
    sealed.letters.save([letter("a"), letter("b", subject="jo")])
    sealed.parked.park([parking("p", -1)], now=datetime.now(timezone.utc))
    sealed.operations.create(operation("one", wanted=Filter(values=("EUX",))))
    blind = opened(ring)
    every = Filter(states=frozenset(State))
    found = {one.task_id: one for one in blind.letters.find(every).letters}
    assert set(found) == {"a", "b", "p"}
    assert all(one.unreadable and not one.message and one.args is None for one in found.values())
    assert (found["p"].state, found["p"].queue) == (State.PARKED, "celery")
    assert not any("destroyed" in one.unreadable for one in found.values())
    [group] = blind.groups.find(Filter(), now=LATER)
    assert (group.open_count, group.message) == (2, "")
    [act] = blind.audit.find().rows
    assert act.act == "redrive"
    assert "unreadable" in act.detail
    [made] = blind.operations.find()
    assert made.unreadable
    assert blind.counts.letters(made.wanted) == 0
    held = blind.leases.take("upkeep", holder="one", seconds=60)
    assert blind.parked.take_due(held, "here", limit=9, hold_s=0.0) == ()
    assert sealed.parked.take_due(held, "here", limit=9, hold_s=60)[0].copy == 1


def test_without_the_key_what_needs_contents_is_refused(opened):
    sealed = opened(OLD)
    sealed.letters.save([letter("a"), letter("b")])
    before = edit_of(sealed.letters.get("a"))
    blind = opened(Keyring({"new": b"n" * 32}))
    for refused in (
        lambda: blind.claims.check_keys(Filter()),
        lambda: blind.regroupings.begin(recipe="x", who="ann", why=""),
        blind.erasing.check_keys,
    ):
        with pytest.raises(ContentsSealed, match=rf"2 letters are encrypted with key {OLD.label}"):
            refused()
    with pytest.raises(ContentsSealed, match="add it again"):
        blind.edits.save(before)
    with pytest.raises(RepairError, match="add it again"):
        text_to_edit(None, blind.letters.get("a"))
    blind.claims.check_keys(Filter(ids=("x",)))
    sealed.claims.check_keys(Filter())
    with pytest.raises(RecordRefused, match="set dlq_encryption_keys"):
        opened(None).letters.save([letter("a", attempt(redrive=1, minutes=5))])
    assert sealed.letters.get("a").attempt_count == 1


def edit_of(seen):
    return Edit(
        task_id=seen.task_id, before=seen.envelope, after=seen.envelope.with_body(b"[]"), args=[],
        kwargs={}, diff="-\n+", who="ann", at=LATER,
    )  # fmt: skip


# -- Attacks by someone who may write to the tables, and has no key -----------------------------------


@pytest.fixture
def attacked(sealed):
    sealed.letters.save([letter("a"), letter("b", envelope=envelope("b", body=b"[[9], {}, {}]"))])
    return sealed


def assert_refused(store, task_id="a", other="b"):
    """The letter is named and not used; another one is not concerned."""
    assert store.letters.get(task_id).unreadable
    assert not store.letters.get(other).unreadable
    claimed = take(store)
    assert not claimed[other].unreadable
    return claimed[task_id]


def test_swapped_bodies_are_refused(attacked):
    body = tables.content.c.body
    mine, theirs = column(attacked, body, "a"), column(attacked, body, "b")
    put(attacked, body, theirs, "a")
    assert "moved here from another letter" in assert_refused(attacked).unreadable
    put(attacked, body, mine, "a")
    assert not attacked.letters.get("a").unreadable


def test_swapped_columns_are_refused(attacked):
    put(attacked, tables.letter.c.message, column(attacked, tables.content.c.traceback))
    assert attacked.letters.get("a").unreadable
    [found] = [one for one in attacked.letters.find(Filter()).letters if one.unreadable]
    assert found.task_id == "a"


@pytest.mark.parametrize("value", [b"[[1000], {}, {}]", b"", b"\x89dlq sealed\x01"])
def test_clear_empty_and_cut_bodies_are_refused(attacked, value):
    put(attacked, tables.content.c.body, value)
    assert assert_refused(attacked).envelope.body == b""


@pytest.mark.parametrize("of", [tables.letter.c.message, tables.content.c.kwargs])
def test_clear_and_cut_texts_are_refused(attacked, of):
    stored = column(attacked, of)
    for value in ("null", stored[:40], stored[:-4], "dlq-sealed:x", "dlq-sealed:€"):
        put(attacked, of, value)
        assert attacked.letters.get("a").unreadable
        assert not attacked.letters.get("b").unreadable


def test_an_edit_cannot_be_undone_by_its_history(attacked):
    edit(attacked, "a", at=LATER, body=b"[[],{},{}]")
    [change] = read(attacked, sa.select(tables.change.c.body))
    put(attacked, tables.content.c.body, change["body"])
    assert assert_refused(attacked).unreadable


def test_an_older_body_of_the_same_letter_is_not_noticed(attacked):
    """What is not promised: the store does not know which of its values is the newest."""
    older = column(attacked, tables.content.c.body)
    edit(attacked, "a", at=LATER, body=b"[[],{},{}]")
    put(attacked, tables.content.c.body, older)
    assert attacked.letters.get("a").envelope == letter("a").envelope


# -- No content is in clear ---------------------------------------------------------------------------

PLANTED = [f"planted{number:02}" for number in range(30)]


def test_no_planted_value_is_in_any_column_or_file(sealed, opened):
    plant(sealed)
    rows = [
        str(value)
        for table in tables.metadata.sorted_tables
        for row in read(sealed, sa.select(table))
        for value in row.values()
    ]
    assert len(rows) > 300
    assert [one for one in PLANTED if any(one in text for text in rows)] == []
    path = sealed.database.url.database
    if sealed.database.dialect.is_file:
        for ending in ("", "-wal"):
            with open(f"{path}{ending}", "rb") as file:
                data = file.read()
            assert [one for one in PLANTED if one.encode() in data] == []


def plant(store, values=PLANTED):
    """Put each value at another place, and do all acts."""
    it = iter(values)
    grounds = Grounds(evidence=(next(it),))
    body = f'[["{next(it)}"], {{}}, {{}}]'.encode()
    headers = {"id": "a", "x-own": next(it), "argsrepr": next(it)}
    failed = letter(
        "a", attempt(message=next(it)), attempt(2, minutes=1), message=next(it), traceback=next(it),
        log=next(it), args=[next(it)], kwargs={"name": next(it)}, grounds=grounds,
        envelope=envelope("a", body=body, headers=headers), subject="jo",
    )  # fmt: skip
    others = [failed.with_(task_id=name, subject="") for name in "bcde"]
    store.letters.save([failed, *others])
    edit(store, "a", at=T0, body=next(it).encode())
    store.edits.save(replace(edit_of(store.letters.get("b")), diff=next(it), why=next(it)))
    wanted = Filter(values=(next(it),))
    orders = Orders(repair=Repair(assignments=(f'kwargs.x="{next(it)}"',)), why=next(it))
    store.operations.create(operation("t", wanted=wanted, orders=orders), repair={"set": next(it)})
    take(store)
    store.claims.confirm("t", "t", {"a": next(it), "b": "", "e": ""}, now=T0)
    store.claims.skip("t", "t", {"c": next(it)}, now=T0)
    store.claims.release("t", "t", ["d"])
    store.sendings.drop([Drop(task_id="e", redrive=1, copy="t", why=next(it))], now=T0)
    again = failed.with_(attempts=(attempt(redrive=1, minutes=40, message=next(it)),))
    store.letters.save([again.with_(last_failed_at=T0 + timedelta(minutes=40))])
    store.operations.move("t", OperationState.RUNNING, who="ann", now=T0)
    store.operations.move("t", OperationState.ABORTED, who="guard", cause=next(it), now=T0)
    store.parked.park([failed.with_(
        task_id="p", state=State.PARKED, parking="here.p", due_at=datetime.now(timezone.utc),
    )], now=datetime.now(timezone.utc))  # fmt: skip
    store.deliveries.put(delivery("a", death=next(it)))
    store.automations.set_state("auto", AutoState.SUSPENDED, who="auto", why=next(it), now=T0)
    handle(store, "c", Discard(next(it)), next(it))
    handle(store, "d", Escalate(to="ops", why=next(it)), next(it))
    acted = Filter(values=(next(it),), states=CLOSED.states)
    store.closing.discard(Filter(ids=("d",)), who="ann", why="", now=LATER)
    store.closing.undiscard(acted, who="ann", now=LATER)
    store.letters.reclassify([], wanted=acted, who="ann", now=LATER)
    lines = [*store.archiving.read(["c", "d"])]
    store.deleting.delete(CLOSED, who="ann", why="", now=LATER)
    store.archiving.restore(lines, who="ann", reopen=True, origin="x", now=LATER)
    assert store.letters.get("d").args == failed.args


def handle(store, task_id, verdict, error):
    this = Scope(name=f"h{task_id}", version="1", where=Filter(ids=(task_id,)))
    lease = store.leases.take("handlers", holder="me", seconds=600)
    [chosen] = store.automations.candidates(this, limit=9)
    assert store.automations.queue(lease, this, [chosen])
    [number] = store.automations.take_due(lease, this, limit=9, again_s=300.0)
    started = store.automations.start(number, worker="w", within_s=60.0)
    store.automations.fail(started, error, again_s=0.0)
    started = store.automations.start(number, worker="w", within_s=60.0)
    assert started.error == error
    detail = {"reason": error}
    seen = store.letters.get(task_id)
    assert store.automations.end(started, seen, verdict, detail=detail).value == "done"
    assert store.automations.get(number).detail == detail


def test_a_value_is_erased_in_texts_that_are_sealed(sealed, opened):
    sealed.letters.save([letter("a", subject="jo"), letter("b")])
    orders = Orders(repair=Repair(assignments=('kwargs.x="jo@x.example"',)))
    asked = operation("t", wanted=Filter(values=("jo@x.example",)), orders=orders)
    sealed.operations.create(asked)
    take(sealed)
    sealed.claims.skip("t", "t", {"a": "no jo@x.example here", "b": "x"}, now=LATER)
    sealed.operations.move("t", OperationState.CANCELLED, who="ann", cause="jo@x.example", now=T0)
    mentions = sealed.erasing.mentions(["jo@x.example"])
    assert sorted({one.place for one in mentions}) == [
        "celery_dead_letter_redrive.why", "celery_dlq_audit.detail", "celery_dlq_audit.why",
        "celery_dlq_operation.cause", "celery_dlq_operation.orders", "celery_dlq_operation.wanted",
    ]  # fmt: skip
    assert sealed.erasing.replace_texts(mentions) == 6
    assert sealed.erasing.mentions(["jo@x.example"]) == []
    assert sealed.sendings.of_letter("a")[0].why == "no [erased] here"
    [row] = read(sealed, sa.select(tables.sending.c.why).where(tables.sending.c.task_id == "a"))
    assert person_in(row["why"]) is not None
    assert sealed.operations.get("t").wanted.values == ("[erased]",)


def test_without_the_key_an_example_of_a_group_is_not_emptied(sealed, opened):
    sealed.letters.save([letter("a"), letter("b", attempt(minutes=1))])
    blind, act = opened(None), OngoingAct(who="ann", act="forget", detail={}, at=T0)
    held = blind.leases.take("retention", holder="one", seconds=60)
    begun = blind.erasing.begin(act, held)
    with pytest.raises(ContentsSealed, match="set dlq_encryption_keys"):
        blind.erasing.delete(["b"], held, begun)
    [group] = sealed.groups.find(Filter(), now=T0)
    assert (group.open_count, group.message) == (2, letter("b").message)
    assert sealed.erasing.delete(["b"], held, begun) == 1


def shown(store, values):
    """The numbers of the planted values that are shown."""
    held = store.leases.take("upkeep", holder="one", seconds=60)
    said = repr(
        [
            *([one.get(name) for name in "abcdep"] for one in [store.letters]),
            *([one.of_letter(name) for name in "abcde"] for one in (store.edits, store.sendings)),
            store.parked.take_due(held, "here", limit=9, hold_s=60),
            store.operations.get("t"), store.automations.statuses(), store.automations.find(),
            store.audit.find().rows, store.deliveries.find("a", "shop.tasks.charge"),
            store.groups.find(Filter(), now=T0), store.tickets.of_groups([letter().fingerprint]),
        ]
    )  # fmt: skip
    assert "unreadable='" not in said.replace("unreadable=''", "")
    return {number for number, value in enumerate(values) if value in said}


@pytest.mark.clear("it needs a store without keys")
def test_texts_of_users_that_look_sealed_are_shown_as_others_are(store, tmp_path):
    hostile = [NEW.seal(one, "elsewhere") for one in PLANTED]
    plant(store, hostile)
    with contextlib.closing(SQLStore(f"sqlite:///{tmp_path / 'harmless.db'}")) as harmless:
        plant(harmless)
        expected = shown(harmless, PLANTED)
    assert len(expected) > 20
    assert shown(store, hostile) == expected


@pytest.mark.clear("it needs a store without keys")
def test_a_reason_that_looks_sealed_stops_no_request(store):
    why = NEW.seal("fixed", "elsewhere")
    store.letters.save([letter("a")])
    made = store.requests.create(
        Filter(), who="ann", why=why, expires_after_s=0.0,
        act="redrive", letters={"a": ""}, changes={}, shown={},
    )  # fmt: skip
    store.requests.prune(None)
    [found] = store.requests.find()
    assert (found.id, found.state.value, found.why) == (made.id, "expired", why)
