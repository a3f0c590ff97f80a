"""``dlq forget`` erases the letters of a person, and says what it could not erase."""

from __future__ import annotations

import json

import pytest
from support.factories import T0, attempt, envelope, letter, operation, parking
from support.stores import redriving
from support.stores.archives import FakeStore, archive_all, lines, segment_id

from celery_dlq.archive.bucket import open_bucket
from celery_dlq.archive.segment import segment_key
from celery_dlq.model.group import Annotate
from celery_dlq.model.states import State
from celery_dlq.spool.segment import encode
from celery_dlq.store.base import Facts, Filter

JO = "jo@example.com"


def letter_of(task_id, *args, at=0, **kwargs):
    body = json.dumps([args, kwargs, {}]).encode()
    message = envelope(task_id, body=body, headers={"id": task_id, "task": "shop.mail"})
    return letter(task_id, attempt(minutes=at), task="shop.mail", envelope=message)


@pytest.fixture(autouse=True)
def mail(app):
    """A task that says what its positional arguments are called."""

    @app.task(name="shop.mail", shared=False)
    def mail(user_id, email):
        raise NotImplementedError


@pytest.fixture
def letters(store):
    """Four letters, two of them of user 7; one of these is closed."""
    store.letters.save(
        [
            letter_of("a1", 7, JO, at=1),
            letter_of("b1", 8, "al@example.com", at=2),
            letter_of("c1", user_id=7, email=JO, at=3),
            letter_of("d1", 77, "", at=4),
        ]
    )
    store.closing.discard(Filter(ids=("c1",)), who="ann", why=f"asked by {JO}", now=T0)
    return store


@pytest.fixture
def place(app, tmp_path):
    place = tmp_path / "letters"
    place.mkdir()
    app.conf.dlq_archive_url = f"file://{place}"
    return place


def left(store) -> list[str]:
    found = store.letters.find(Filter(states=frozenset(State))).letters
    return sorted(one.task_id for one in found)


def forget(run, *args, why="request 12"):
    return run("forget", *args, "--why", why, "--yes")


def test_letters_are_erased_by_an_argument(run, letters):
    result = forget(run, "--where", "args.user_id=7")
    assert (result.exit_code, result.stdout) == (0, "Erased 2 dead letters in the store.\n")
    assert left(letters) == ["b1", "d1"]
    (act,) = letters.audit.find(act="forget").rows
    assert (act.count, act.why, act.detail) == (2, "request 12", {"where": ["args.user_id"]})


def test_letters_are_erased_by_their_ids(run, letters):
    result = forget(run, "--task-id", "a1", "--task-id", "b1")
    assert (result.exit_code, result.stdout) == (0, "Erased 2 dead letters in the store.\n")
    assert left(letters) == ["c1", "d1"]


def test_an_id_is_not_a_prefix(run, letters):
    result = forget(run, "--task-id", "a")
    assert (result.exit_code, result.stdout) == (1, "No dead letters match.\n")
    assert len(left(letters)) == 4


def test_the_value_is_replaced_in_other_texts(run, letters):
    group = letters.letters.get("a1").fingerprint
    letters.groups.triage(group, Annotate(note=f"Call {JO}."), who="bob", now=T0)
    result = forget(run, "--where", f"args.email={JO}")
    assert "Erased 2 dead letters in the store; the value in 2 other texts.\n" in result.stdout
    assert letters.groups.get(group, now=T0).note == "Call [erased]."


def test_a_short_value_is_not_searched_in_other_texts(run, letters):
    group = letters.letters.get("a1").fingerprint
    letters.groups.triage(group, Annotate(note="7 people called."), who="bob", now=T0)
    result = forget(run, "--where", "args.user_id=7")
    assert "The value of args.user_id is too short to be searched in notes" in result.stderr
    assert letters.groups.get(group, now=T0).note == "7 people called."


def test_the_letters_are_counted_before_the_question(run, letters, terminal):
    terminal.sit_down()
    result = run("forget", "--where", "args.user_id=7", "--why", "x", answer="n\n")
    assert result.exit_code == 1
    assert "In the store: 1 dead, 1 discarded.\n" in result.stdout
    assert "Erase 2 dead letters for ever? [y/N]" in result.stderr
    assert "Nothing was changed." in result.stderr
    assert len(left(letters)) == 4
    result = run("forget", "--where", "args.user_id=7", "--why", "x", answer="y\n")
    assert result.exit_code == 0
    assert left(letters) == ["b1", "d1"]


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("--why", "x"), "Give either --task-id, --where or --subject."),
        (("--task-id", "a1", "--where", "args[0]=7", "--why", "x"), "Give either"),
        (("--task-id", "a1"), "Erasing letters needs a reason; add --why TEXT."),
        (("--where", "user=7", "--why", "x"), "begin with args, kwargs, headers"),
        (("--where", "args[0]=", "--why", "x"), "write a value after the equals sign"),
        (("--task-id", "a1", "--why", "x"), "There is no terminal to confirm on; add --yes."),
        (("--task-id", "", "--why", "x"), "Invalid value for '--task-id': it is empty"),
    ],
)
def test_a_wrong_command_line_changes_nothing(run, letters, args, said):
    result = run("forget", *args)
    assert result.exit_code == 2
    assert said in result.stderr
    assert len(left(letters)) == 4
    assert letters.audit.find(act="forget").rows == ()


def test_without_such_letters_nothing_is_changed(run, letters):
    result = forget(run, "--where", "args.user_id=9")
    assert (result.exit_code, result.stdout) == (0, "No dead letters match.\n")
    assert letters.audit.find(act="forget").rows == ()


def test_letters_are_removed_from_the_archive(run, place, letters):
    letters.closing.discard(Filter(), who="ann", why="", now=T0)
    run("archive", "run", "--all", "--yes")
    result = forget(run, "--where", "args.user_id=7")
    assert result.exit_code == 0
    assert result.stdout == "Erased 2 dead letters in the archive, where 1 segment was replaced.\n"
    assert run("archive", "show", "a1").exit_code == 1
    assert run("archive", "show", "b1").exit_code == 0
    assert run("archive", "verify").exit_code == 0
    (act,) = letters.audit.find(act="forget").rows
    assert act.count == 2
    assert len(act.detail["segments"]) == 1


def test_the_segments_are_named_before_the_question(run, place, letters, terminal):
    letters.closing.discard(Filter(), who="ann", why="", now=T0)
    run("archive", "run", "--all", "--yes")
    terminal.sit_down()
    result = run("forget", "--where", "args.user_id=7", "--why", "x", answer="n\n")
    assert "In the archive: 2 in " in result.stdout
    assert "Erase 2 dead letters for ever? [y/N]" in result.stderr
    assert run("archive", "show", "a1").exit_code == 0


def test_an_archive_that_is_not_set_any_more_is_an_error(run, place, letters, app):
    letters.closing.discard(Filter(), who="ann", why="", now=T0)
    run("archive", "run", "a1", "--yes")
    app.conf.dlq_archive_url = None
    del app.dead_letter_queue
    result = forget(run, "--task-id", "c1")
    assert result.exit_code == 1
    assert "has letters in an archive, and dlq_archive_url is not set" in result.stderr
    assert left(letters) == ["b1", "c1", "d1"]


def test_an_archive_that_is_away_keeps_everything(run, place, letters):
    place.rmdir()
    result = forget(run, "--task-id", "c1")
    assert result.exit_code == 1
    assert "does not exist" in result.stderr
    assert len(left(letters)) == 4


def test_files_of_other_stores_are_named(run, place, letters):
    archive_all(open_bucket(f"file://{place}"), FakeStore(lines(1)))
    result = forget(run, "--task-id", "id-000001")
    assert result.exit_code == 4
    assert f"The store has no row for {segment_key(segment_id(1))}." in result.stderr
    assert run("archive", "adopt").exit_code == 0
    assert forget(run, "--task-id", "id-000001").exit_code == 0
    assert list((place / "segments").iterdir()) == []


def test_a_retry_that_waits_is_named(run, letters):
    waits = parking("p1", 3600, envelope=letter_of("p1", 7, JO).envelope)
    letters.parked.park([waits], now=T0)
    result = forget(run, "--where", "args.user_id=7")
    assert result.exit_code == 4
    assert (
        "These wait in the store to be sent, and stay: p1. Run this again when they have run."
        in result.stderr
    )
    assert left(letters) == ["b1", "d1", "p1"]


def test_a_letter_that_is_being_sent_is_named(run, letters, held):
    held(3)
    result = forget(run, "--where", "args.user_id=7")
    assert result.exit_code == 4
    assert "Still in the store: a1. A redrive is sending them" in result.stderr
    assert left(letters) == ["a1", "b1", "d1"]


def test_a_letter_that_was_sent_back_may_come_again(run, letters):
    letters.operations.create(operation("one", wanted=Filter(ids=("a1",))))
    redriving.claim(letters, Filter(ids=("a1",)), token="one", lease_until=T0, limit=9, now=T0)
    redriving.end(letters, "one", ["a1"])
    result = forget(run, "--task-id", "a1")
    assert result.exit_code == 4
    assert "Messages of 1 dead letter were sent back." in result.stderr
    assert "a1" not in left(letters)


def test_an_unknown_id_among_others_is_named(run, letters):
    result = forget(run, "--task-id", "a1", "--task-id", "a1", "--task-id", "x")
    assert (result.exit_code, result.stdout) == (4, "Erased 1 dead letter in the store.\n")
    assert "No letter has the task id x." in result.stderr


def test_what_a_killed_run_has_left_is_ended(run, place, letters, queue):
    letters.closing.discard(Filter(), who="ann", why="", now=T0)
    run("archive", "run", "--all", "--yes")
    lease = letters.leases.take("retention", holder="one", seconds=60)
    facts = Facts(letters=1, size=1, sha256="", first_failed_at=T0, last_failed_at=T0)
    letters.archiving.begin(facts, lease)
    letters.leases.give_up(lease)
    result = forget(run, "--task-id", "nowhere")
    assert (result.exit_code, result.stdout) == (4, "Erased nothing.\n")
    assert [one.counts for one in letters.archiving.segments()] == [True]


def test_a_damaged_segment_does_not_keep_letters_of_the_store(run, place, letters):
    letters.closing.discard(Filter(ids=("b1",)), who="ann", why="", now=T0)
    run("archive", "run", "b1", "--yes")
    (file,) = (place / "segments").iterdir()
    file.write_bytes(file.read_bytes()[:-1])
    result = forget(run, "--where", "args.user_id=7")
    assert result.exit_code == 4
    assert file.name in result.stderr
    assert left(letters) == ["d1"]


def test_letters_in_the_spool_are_named(run, letters, queue):
    queue.spool.directory.mkdir(exist_ok=True)
    file = queue.spool.directory / "1.jsonl"
    file.write_bytes(encode(letter_of("s1", 7, JO)) + b'{"torn\n')
    result = forget(run, "--where", "args.user_id=7")
    assert result.exit_code == 4
    assert "1.jsonl in the spool of this machine holds 1 such letter. Run this" in result.stderr
    assert "1.jsonl in the spool of this machine has 1 line that cannot be read" in result.stderr
    run("recover")
    forget(run, "--where", "args.user_id=7")
    assert left(letters) == ["b1", "d1"]


def test_letters_that_cannot_be_read_are_named(run, letters):
    letters.letters.save(
        [
            letter("u1", envelope=envelope("u1", body=b"\xff")),
            letter("u2", task="old", envelope=envelope("u2", body=b"[[7], {}, {}]", headers={})),
        ]
    )
    result = forget(run, "--where", "args.user_id=7")
    assert result.exit_code == 4
    assert "u1 could not be read, and stays: its body cannot be decoded" in result.stderr
    assert "u2 could not be read, and stays: the app does not have its task old" in result.stderr
    assert left(letters) == ["b1", "d1", "u1", "u2"]


def test_while_another_process_removes_letters_nothing_is_erased(run, letters):
    letters.leases.take("retention", holder="worker", seconds=60)
    result = forget(run, "--task-id", "a1")
    assert result.exit_code == 1
    assert "removes letters at the moment. Try again in a minute." in result.stderr
    assert len(left(letters)) == 4
