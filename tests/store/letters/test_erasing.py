"""Erased letters are gone, and so is what the store has noted about them elsewhere."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta

import pytest
from sqlalchemy import String, func, select
from support.auto_world import queue
from support.factories import T0, attempt, letter, operation, parking
from support.stores import redriving
from support.stores.history import edit

from celery_dlq.base.codec import dump_json
from celery_dlq.errors import LeaseLost
from celery_dlq.model.group import Annotate
from celery_dlq.model.handling import Discard, Escalate
from celery_dlq.model.operation import OperationState, Orders, Pacing, Repair
from celery_dlq.model.states import State
from celery_dlq.store.base import Argument, Filter, OngoingAct, Scope
from celery_dlq.store.database import tables
from celery_dlq.store.letters import erasing

ACT = OngoingAct(
    who="ann", act="forget", why="request 12", detail={"where": ["args.user_id"]}, at=T0
)
JO = "jo@example.com"
NOW = T0 + timedelta(days=1)


def minutes(number: float):
    return T0 + timedelta(minutes=number)


def lease(store, holder: str = "one"):
    return store.leases.take("retention", holder=holder, seconds=60)


def begin(store) -> OngoingAct:
    return store.erasing.begin(ACT, lease(store))


def erase(store, *ids: str, act: OngoingAct | None = None) -> int:
    return store.erasing.delete(ids, lease(store), act or begin(store))


def replace_texts(store, *texts: str) -> int:
    return store.erasing.replace_texts(store.erasing.mentions(texts))


def rows(store, table) -> int:
    counted = select(func.count()).select_from(table)
    return store.database.read(lambda connection: connection.execute(counted).scalar_one())


def acts(store, act: str):
    return store.audit.find(act=act).rows


def example(store, fingerprint: str) -> str:
    return store.groups.get(fingerprint, now=T0).message


def note(store, text: str) -> None:
    store.groups.triage("aa", Annotate(note=text), who="bob", now=T0)


def cancel(store, operation_id: str, cause: str = "") -> None:
    store.operations.move(operation_id, OperationState.CANCELLED, who="bob", cause=cause, now=T0)


@pytest.fixture
def letters(store, counts_hold_in_the_end):
    store.letters.save(
        [
            letter(name, attempt(minutes=at), message=f"failed for {name}", fingerprint="aa")
            for at, name in enumerate("abcd")
        ]
    )
    return store


def test_letters_in_any_state_are_gone_with_all_that_they_had(letters):
    edit(letters, "a", at=minutes(5))
    letters.closing.discard(Filter(ids=("b",)), who="ann", why="", now=minutes(10))
    assert erase(letters, "a", "b", "gone") == 2
    assert letters.letters.get("a") is letters.letters.get("b") is None
    assert (rows(letters, tables.content), rows(letters, tables.attempt)) == (2, 2)
    assert rows(letters, tables.change) == 0


def test_a_letter_that_is_being_sent_stays(letters):
    redriving.claim(
        letters, Filter(ids=("a",)), token="one", lease_until=minutes(60), limit=9, now=T0
    )
    assert erase(letters, "a", "b") == 1
    assert letters.letters.get("a").state is State.CLAIMED


def test_the_act_is_written_first_and_counts_the_letters(letters):
    begun = begin(letters)
    (act,) = acts(letters, "forget")
    assert (act.who, act.count, act.why, act.detail) == ("ann", 0, "request 12", ACT.detail)
    erase(letters, "a", act=begun)
    erase(letters, "b", "c", act=begun)
    assert [one.count for one in acts(letters, "forget")] == [3]


def test_without_the_lease_nothing_is_erased(letters):
    mine, begun = lease(letters), begin(letters)
    letters.leases.give_up(mine)
    lease(letters, "two")
    with pytest.raises(LeaseLost, match="Another worker"):
        letters.erasing.delete(["a"], mine, begun)
    with pytest.raises(LeaseLost, match="Another worker"):
        letters.erasing.begin(ACT, mine)
    assert letters.letters.get("a") is not None


def test_the_example_of_a_group_comes_from_a_letter_that_it_still_has(letters):
    assert example(letters, "aa") == "failed for d"
    erase(letters, "d", "b")
    assert example(letters, "aa") == "failed for c"


def test_the_example_of_a_group_goes_with_its_last_letter(letters):
    erase(letters, *"abcd")
    assert example(letters, "aa") == ""
    letters.letters.save([letter("e", attempt(minutes=1), message="new", fingerprint="aa")])
    assert example(letters, "aa") == "new"


def test_acts_on_a_letter_keep_neither_their_reason_nor_their_changes(letters):
    edit(letters, "a", at=minutes(5))
    letters.closing.discard(Filter(ids=("a",)), who="bob", why=f"{JO} left", now=minutes(10))
    letters.closing.discard(Filter(ids=("b",)), who="bob", why="other", now=minutes(10))
    erase(letters, "a")
    (changed,) = acts(letters, "edit")
    assert changed.detail == {"letter": "a"}
    other, discarded = acts(letters, "discard")
    assert (discarded.who, discarded.why, discarded.detail) == ("bob", "[erased]", {"letter": "a"})
    assert other.why == "other"


def test_the_act_names_the_segments_that_were_replaced(letters):
    begun = begin(letters)
    for number in ("1", "2"):
        begun = letters.erasing.note_segment(begun, number, f"{number}0", letters=2)
    (act,) = acts(letters, "forget")
    assert act.count == 4
    assert act.detail == {**ACT.detail, "segments": {"1": "10", "2": "20"}}


def test_notes_about_archived_letters_are_erased(letters):
    letters.closing.discard(Filter(ids=("a",)), who="bob", why=f"{JO} left", now=minutes(10))
    letters.erasing.erase_notes(["a"], {("aa", "shop.charge", "ValueError")})
    (discarded,) = acts(letters, "discard")
    assert discarded.why == "[erased]"
    assert example(letters, "aa") == "failed for d"


def test_an_earlier_erasure_keeps_its_reason_and_its_segments(letters):
    begun = letters.erasing.begin(replace(ACT, detail={"letter": "a"}), lease(letters))
    letters.erasing.note_segment(begun, "1", "10", letters=1)
    erase(letters, "a")
    second, first = acts(letters, "forget")
    assert (first.why, first.detail) == (ACT.why, {"letter": "a", "segments": {"1": "10"}})
    assert (second.count, second.detail) == (1, ACT.detail)


def a_redrive(store, operation_id: str, *ids: str, end: bool = True) -> None:
    """An operation with texts about a person, whose letters fail again."""
    orders = Orders(
        why=f"for {JO}", repair=Repair(assignments=(f"kwargs.email={JO}",)), pacing=Pacing(rate=9.0)
    )
    wanted = Filter(ids=ids, search=JO)
    store.operations.create(operation(operation_id, wanted=wanted, orders=orders))
    redriving.claim(
        store, Filter(ids=ids), token=operation_id, lease_until=minutes(60), limit=9, now=T0
    )
    redriving.end(store, operation_id, ids)
    store.letters.save([letter(name, attempt(redrive=1, minutes=8)) for name in ids])
    if end:
        cancel(store, operation_id, f"{JO} asked")


def test_the_texts_of_an_operation_go_with_its_last_letter(letters):
    a_redrive(letters, "one", "a", "b")
    a_redrive(letters, "two", "a", "b", "c")
    letters.erasing.erase_operations(["a", "b"])
    one, two = letters.operations.get("one"), letters.operations.get("two")
    assert (one.cause, one.wanted.search, one.orders.why) == ("[erased]",) * 3
    assert one.orders.repair.assignments == ("kwargs.email=[erased]",)
    assert (one.orders.pacing.rate, one.wanted.ids) == (9.0, ("a", "b"))
    assert (two.cause, two.orders.why) == (f"{JO} asked", f"for {JO}")
    whys = {act.detail["operation"]: act.why for act in acts(letters, "redrive")}
    assert whys == {"one": "[erased]", "two": f"for {JO}"}


def test_the_orders_of_an_operation_that_has_not_ended_stay(letters):
    a_redrive(letters, "one", "a", end=False)
    letters.erasing.erase_operations(["a"])
    assert letters.operations.get("one").orders.why == f"for {JO}"


def test_a_request_is_searched_after_it_has_ended(letters):
    ended, waits = (
        letters.requests.create(
            Filter(), act="redrive", who="bob", why=f"for {JO}", letters={}, changes={}, shown={},
            expires_after_s=60,
        ).id
        for _ in range(2)
    )  # fmt: skip
    letters.requests.answer(ended, None, who="bob", why=f"{JO} has paid")
    places = {mention.place for mention in letters.erasing.mentions([JO])}
    assert {"celery_dlq_request.why", "celery_dlq_request.record"} <= places
    replace_texts(letters, JO)
    assert letters.requests.get(ended).why == "for [erased]"
    assert letters.requests.get(ended).answers[0].why == "[erased] has paid"
    assert letters.requests.get(waits).why == f"for {JO}"


def test_a_value_is_replaced_wherever_people_have_written_it(letters):
    letters.closing.discard(Filter(ids=("a",)), who="bob", why=f"of {JO}, today", now=T0)
    note(letters, f"Call {JO}!")
    letters.operations.create(operation("done", wanted=Filter(search=JO)))
    cancel(letters, "done", f"asked by {JO}")
    letters.operations.create(operation("waits", wanted=Filter(search=JO)))
    letters.regroupings.begin(recipe="shop.by_task", who="bob", why=f"for {JO}")
    places = {mention.place for mention in letters.erasing.mentions([JO])}
    assert places == {
        "celery_dlq_audit.why", "celery_dlq_audit.detail", "celery_dead_letter_group.note",
        "celery_dlq_operation.cause", "celery_dlq_operation.wanted",
        "celery_dead_letter.closed_reason",
    }  # fmt: skip
    assert replace_texts(letters, JO) > len(places)
    assert letters.operations.get("done").wanted.search == "[erased]"
    assert letters.operations.get("done").state is OperationState.CANCELLED
    assert letters.operations.get("waits").wanted.search == JO
    (group,) = letters.groups.find(Filter(group="aa"), now=T0)
    assert group.note == "Call [erased]!"
    assert letters.erasing.mentions([JO]) == []


def handled(store, task_id: str, verdict, error: str = "") -> None:
    """Let a handler end the letter with a verdict, or with an error."""
    held = store.leases.take("handlers", holder="me", seconds=600)
    scope = Scope(name="mend", version="1", where=Filter(ids=(task_id,)), once_per_group=False)
    queue(store, held, scope)
    (number,) = store.automations.take_due(held, scope, limit=9, again_s=1)
    started = store.automations.start(number, worker="w", within_s=60)
    if error:
        store.automations.fail(started, error, again_s=None)
    else:
        seen = store.letters.get(task_id)
        store.automations.end(started, seen, verdict, detail=dict(vars(verdict)))


def everything(store) -> str:
    """All values in all tables."""
    tables_ = tables.metadata.sorted_tables
    return repr(
        [store.database.read(lambda on, one=one: on.execute(select(one)).all()) for one in tables_]
    )


def test_what_handlers_wrote_about_other_letters_is_replaced(letters):
    handled(letters, "b", Discard(f"sent to {JO} already"))
    handled(letters, "c", Escalate(f"friends of {JO}", why=f"{JO} waits"))
    handled(letters, "d", None, error=f"ValueError: no mail to {JO}")
    assert {"celery_dlq_handling.detail", "celery_dlq_handling.error"} <= {
        mention.place for mention in letters.erasing.mentions([JO])
    }
    replace_texts(letters, JO)
    assert JO not in everything(letters)
    found = letters.automations.find().rows
    assert "sent to [erased] already" in [one.detail.get("reason") for one in found]


@pytest.mark.parametrize("name", ['Jo "JJ" Ann', "Zoë Doe", "a\\b c", 'Zoë "Z"'])
def test_a_value_is_found_in_changes_however_it_is_written(letters, name):
    for operation_id, written in (
        ("one", dump_json(name)),
        ("two", json.dumps(name, ensure_ascii=False)),
    ):
        orders = Orders(repair=Repair(assignments=(f"kwargs.name={written}",)), why=name)
        letters.operations.create(operation(operation_id, orders=orders))
        cancel(letters, operation_id)
    detail = {"set": [f"kwargs.name={dump_json(name)}"], "changed": f'+ kwargs.name = "{name}"'}
    letters.audit.note(
        who="ann", act="redrive", count=1, at=T0, detail={"operation": "one", **detail}
    )
    replace_texts(letters, name)
    for operation_id in ("one", "two"):
        found = letters.operations.get(operation_id).orders
        assert (found.repair.assignments, found.why) == (('kwargs.name="[erased]"',), "[erased]")
    assert acts(letters, "redrive")[0].detail["set"] == ['kwargs.name="[erased]"']
    assert letters.erasing.mentions([name]) == []


#: Why no search for a person's value is needed in a column: whole tables first, then columns of any table.
OF_LETTERS = (
    "it is a part of a letter, and goes with it; letters of others are looked through by a person"
)
NOT_SEARCHED = {
    "celery_dead_letter_content": OF_LETTERS,
    "celery_dead_letter_attempt": OF_LETTERS,
    "celery_dead_letter_change": OF_LETTERS,
    "celery_dlq_parked": OF_LETTERS,
    "celery_dead_letter.message": OF_LETTERS,
    "celery_dead_letter.evidence": OF_LETTERS,
    "celery_dead_letter.path": OF_LETTERS,
    "celery_dead_letter.tags": OF_LETTERS,
    "celery_dlq_delivery": "it is about a message that runs, and goes when its run ends",
    "celery_dlq_breaker": "it is the circuit of a key; the documentation says that it goes after a week",
    "celery_dlq_lease": "names of processes",
    "celery_dlq_key": "keys that are encrypted",
    "celery_dlq_claim": "ids of operations and names of processes",
    "celery_dlq_segment": "ids and hashes of files",
    "celery_dead_letter_group.failed_in": "names of releases",
    "celery_dlq_request.digest": "a hash of the row",
    "celery_dlq_alias": "fingerprints, words of this package, and a person who acted, who stays by design",
    "celery_dlq_audit.salt": "chance",
    "celery_dlq_audit_link": "hashes, which no one can guess without the salt of the row",
    "celery_dlq_ticket.url": "the address of a ticket in another system; the documentation says it",
}
NAMES = {
    "who closed_by status_by host": "a person who acted, and the machine; they stay by design",
    "task_id root_id parent_id group_id correlation_id subject": "ids; personal data must not be used as one",
    "task exception_type path rule handler version route resolved_in recipe regroup": "names in code",
    "release message_release": "releases of code",
    "queue exchange routing_key content_type content_encoding broker app canvas": "names in settings",
    "worker process holder place": "names of processes",
    "namespace": "names in settings",
    "fingerprint raw_fingerprint id run operation claim_token token": "ids",
    "copy accepted parking probe manifest chain sealed_by": "ids",
    "state status reason verdict was cause kind mode act name": "words of this package, or names in code",
}


def test_each_text_column_is_searched_or_can_hold_no_text_about_a_person():
    searched = {f"{one.table.name}.{one.name}" for one in (*erasing.PLAIN, *erasing.JSON)}
    names = {name for some in NAMES for name in some.split()}
    texts = [
        column
        for table in tables.metadata.sorted_tables
        for column in table.columns
        if isinstance(column.type, String)
    ]
    assert len(texts) > 100
    unknown = [
        f"{column.table.name}.{column.name}"
        for column in texts
        if not {f"{column.table.name}.{column.name}", column.table.name}
        & (searched | {*NOT_SEARCHED})
        and column.name not in names
    ]
    assert unknown == []
    # Long texts are never excused by their name alone.
    long_texts = {f"{one.table.name}.{one.name}": one for one in texts if one.type.length is None}
    assert [
        place
        for place, one in long_texts.items()
        if place not in searched and not {place, one.table.name} & {*NOT_SEARCHED}
    ] == []


def test_a_value_that_a_redrive_was_asked_for_is_replaced(letters):
    wanted = Filter(args=(Argument.read(f"customer={JO}"),), values=(JO, "other"))
    letters.operations.create(operation("done", wanted=wanted))
    cancel(letters, "done")
    assert replace_texts(letters, JO) == 2
    found = letters.operations.get("done").wanted
    assert [str(one) for one in found.args] == ["customer=[erased]"]
    assert found.values == ("[erased]", "other")
    assert JO not in str(acts(letters, "redrive"))


def test_only_whole_words_are_replaced(letters):
    for text in ("4711", "x4711", "47110", "no. 4711.", "4711-2"):
        note(letters, text)
        replace_texts(letters, "4711")
        (group,) = letters.groups.find(Filter(group="aa"), now=T0)
        assert group.note == text if text in ("x4711", "47110") else "4711" not in group.note


@pytest.mark.parametrize("name", ["Zoë", 'Jo "the" Ann', "100%_sure", "a\\b"])
def test_values_with_special_characters_are_found_in_json(letters, name):
    letters.operations.create(operation("one", wanted=Filter(search=name)))
    cancel(letters, "one")
    replace_texts(letters, name)
    assert letters.operations.get("one").wanted.search == "[erased]"


def test_what_is_not_a_text_stays(letters):
    orders = Orders(pacing=Pacing(rate=4711.0), why="4711")
    wanted = Filter(ids=("0b7e3f10-4711-4c1e",), task="shop.4711", until=NOW)
    letters.operations.create(operation("one", wanted=wanted, orders=orders))
    cancel(letters, "one")
    for text in ("4711", "4711.0", "2026", "shop.4711", "true", "rate", "ids"):
        replace_texts(letters, text)
    found = letters.operations.get("one")
    assert (found.wanted, found.orders) == (wanted, replace(orders, why="[erased]"))
    assert acts(letters, "redrive")[0].detail["planned"] == 3


@pytest.mark.parametrize("text", [f"asked by\n{JO}", f"„{JO}“", f"<{JO}>", f'"{JO}"'])
def test_a_value_is_found_beside_any_character(letters, text):
    letters.operations.create(operation("one", wanted=Filter(search=text)))
    cancel(letters, "one")
    assert replace_texts(letters, JO) > 0
    assert letters.operations.get("one").wanted.search == text.replace(JO, "[erased]")


def test_a_text_that_has_changed_since_stays(letters):
    note(letters, f"Call {JO}!")
    mentions = [one for one in letters.erasing.mentions([JO]) if one.place.endswith("note")]
    note(letters, f"{JO} has called.")
    assert letters.erasing.replace_texts(mentions) == 0
    assert letters.groups.get("aa", now=T0).note == f"{JO} has called."


def test_without_texts_nothing_is_replaced(letters):
    note(letters, "note")
    assert letters.erasing.mentions([]) == []


def test_parked_retries_are_read_page_by_page(store):
    store.parked.park([parking(name, 60) for name in "abc"], now=store.now())
    first, last = store.erasing.parked_after(0, limit=2)
    second, last = store.erasing.parked_after(last, limit=2)
    assert [one.task_id for one in (*first, *second)] == ["a", "b", "c"]
    assert store.erasing.parked_after(last, limit=2) == ([], last)
    assert first[0].envelope.body == letter("a").envelope.body


def test_letters_are_listed_in_an_order_that_a_new_failure_does_not_change(letters):
    first, last = letters.erasing.letters_after(0, limit=2)
    letters.letters.save([letter(first[0], attempt(redrive=1, minutes=50)), letter("e")])
    second, last = letters.erasing.letters_after(last, limit=9)
    assert [*first, *second] == ["a", "b", "c", "d", "e"]
    assert letters.erasing.letters_after(last, limit=9) == ([], last)
