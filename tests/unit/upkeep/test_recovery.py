from __future__ import annotations

import shutil
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from types import SimpleNamespace

import pytest
from celery import Celery
from support.factories import attempt, envelope, letter

from celery_dlq import DeadLetterQueue, DLQTask
from celery_dlq.base.process import boot_of, identity
from celery_dlq.base.sealing import Keyring
from celery_dlq.errors import StoreUnavailable
from celery_dlq.model.letter import Outcome
from celery_dlq.model.states import Reason, State
from celery_dlq.model.worker import ReportKind
from celery_dlq.recorder.files import FilesState, look
from celery_dlq.recorder.flight import FlightRecorder
from celery_dlq.recorder.tags import Tags, forget_noted
from celery_dlq.upkeep.lost_messages import letter_of_lost
from celery_dlq.upkeep.recovery import SETTLED_S, Recovered, Recovery
from celery_dlq.worker.celery_quirks.unacked import Whereabouts


def charge(number): ...


@pytest.fixture
def app(tmp_path):
    app = Celery("shop", set_as_current=False, broker="memory://")
    app.conf.update(
        dlq_store_url=f"sqlite:///{tmp_path}/store.sqlite3", dlq_spool_dir=str(tmp_path / "spool")
    )
    app.task(charge, base=DLQTask, name="shop.charge", dlq_tags=("money",), shared=False)
    yield app
    app.dead_letter_queue.store.close()
    app.close()


@pytest.fixture
def dlq(app):
    return DeadLetterQueue.of(app)


def sent(task_id, *, retries=0, **changes):
    headers = {"id": task_id, "task": "shop.charge", "retries": retries}
    given = {
        "body": b"[[4711], {}, {}]", "headers": headers, "properties": {},
        "content_type": "application/json",
        "delivery_info": {"exchange": "", "routing_key": "celery"}, "content_encoding": "utf-8",
        "errors": [], "acknowledged": True,
    }  # fmt: skip
    return SimpleNamespace(**{**given, **changes})


def leave(
    dlq, *, acknowledged=True, succeeded=False, task_id="one", retries=0, body=b"[[4711], {}, {}]",
    release="", ring=None, **changes,
):  # fmt: skip
    """The files of a worker that was killed while it ran a message; returns when the message was accepted."""
    recorder = FlightRecorder(dlq.recorder_dir, worker="w@host", release=release, ring=ring)
    message = sent(task_id, retries=retries, body=body, acknowledged=acknowledged, **changes)
    entry = recorder.record(message, "shop.charge", 7)
    if succeeded:
        recorder.succeeded(entry)
    recorder.confirm()
    recorder._own.close()  # as the kernel does


def total(dlq):
    return sum(dlq.recorder.recover(), Recovered())


def recovery_at(dlq, now):
    return Recovery(
        dlq.app, dlq, dlq.recorder_dir, save=dlq.store_records, put_aside=_killed, now=lambda: now
    )


def test_a_message_of_a_killed_worker_becomes_a_letter(dlq):
    leave(dlq)
    found = total(dlq)
    assert (found.processes, found.letters, found.ended) == (1, 1, 0)
    letter = dlq.store.letters.get("one")
    assert (letter.state, letter.reason, letter.task) == (State.DEAD, Reason.LOST, "shop.charge")
    assert (letter.args, letter.tags, letter.worker, letter.pid) == (
        [4711],
        ("money",),
        "w@host",
        7,
    )
    assert (letter.queue, letter.envelope.body) == ("celery", b"[[4711], {}, {}]")
    assert "it is unknown how far it came" in letter.explanation.evidence
    assert list(look(dlq.recorder_dir)) == []
    assert total(dlq) == Recovered()


def test_without_the_key_encrypted_messages_stay_and_the_others_become_letters(dlq, app, caplog):
    given, keys = [], {"new": b"n" * 32}
    leave(dlq, ring=Keyring(keys))
    leave(dlq, task_id="two")
    recovery = Recovery(
        app, dlq, dlq.recorder_dir, save=dlq.store_records, put_aside=_killed,
        give_back=lambda found: given.append(found.directory) or {},
    )  # fmt: skip
    done = sum(recovery.run(lambda: dlq.store), Recovered())
    [stays] = done.failed
    [report] = done.reports
    assert (done.letters, dlq.store.letters.get("one")) == (1, None)
    assert "set dlq_encryption_keys here" in report.why
    assert "stays" in caplog.text
    assert stays not in given, "the broker's copies can be settled only with the message"
    app.conf.dlq_encryption_keys = keys
    again = DeadLetterQueue(app)
    assert total(again).letters == 1
    again.store.close()


def test_a_letter_has_the_release_of_the_killed_worker(dlq):
    """Another one may have been deployed since."""
    leave(dlq, release="41")
    dlq.settings = replace(dlq.settings, release="42")
    total(dlq)
    letter = dlq.store.letters.get("one")
    assert (letter.release, letter.message_release) == ("41", "41")


def test_a_recovery_that_was_killed_after_it_saved_makes_no_second_letter(dlq, monkeypatch):
    leave(dlq)
    with monkeypatch.context() as patched:
        patched.setattr("celery_dlq.recorder.files._File.settle", _killed)
        with pytest.raises(KeyboardInterrupt):
            total(dlq)
    assert dlq.store.letters.get("one").reason is Reason.LOST
    found = total(dlq)
    assert (found.letters, found.ended) == (0, 1)
    assert dlq.store.letters.get("one").attempt_count == 1


def _killed(*_):
    raise KeyboardInterrupt


def test_messages_stay_in_their_files_while_the_store_is_away(dlq):
    def away(_letters):
        raise StoreUnavailable("The dead-letter store does not answer")

    leave(dlq)
    recovery = Recovery(dlq.app, dlq, dlq.recorder_dir, save=away, put_aside=_killed)
    with pytest.raises(StoreUnavailable):
        list(recovery.run(lambda: dlq.store))
    assert [(one.state, one.messages) for one in look(dlq.recorder_dir)] == [(FilesState.GONE, 1)]
    assert total(dlq).letters == 1


@pytest.mark.parametrize("acknowledged", [True, False])
def test_one_whose_body_had_succeeded_is_no_letter_and_resolves_the_one_that_waits(
    dlq, acknowledged, caplog
):
    dlq.store.letters.save([letter("one", task="shop.charge")])
    leave(dlq, body=envelope().body, succeeded=True, acknowledged=acknowledged)
    with caplog.at_level("INFO"):
        found = total(dlq)
    assert (found.letters, found.ended, found.waiting) == (0, 1, 0)
    resolved = dlq.store.letters.get("one")
    assert (resolved.state, resolved.reason) == (State.RESOLVED, Reason.TERMINAL)
    assert "shop.charge[one] had succeeded when its worker w@host was killed" in caplog.text
    assert list(look(dlq.recorder_dir)) == []


def test_a_success_that_cannot_be_stored_stays_in_its_file(dlq):
    def away(_records):
        raise StoreUnavailable("The dead-letter store does not answer")

    leave(dlq, succeeded=True)
    recovery = Recovery(dlq.app, dlq, dlq.recorder_dir, save=away, put_aside=_killed)
    with pytest.raises(StoreUnavailable):
        list(recovery.run(lambda: dlq.store))
    assert total(dlq) == Recovered(processes=1, ended=1)


def test_a_letter_that_the_store_refuses_is_put_aside(dlq):
    leave(dlq)
    aside = []
    recovery = Recovery(
        dlq.app, dlq, dlq.recorder_dir, save=lambda letters: [0], put_aside=aside.append
    )
    assert sum(recovery.run(lambda: dlq.store), Recovered()).letters == 1
    assert [letter.task_id for letter in aside] == ["one"]
    assert list(look(dlq.recorder_dir)) == []


def test_a_run_whose_end_is_in_the_store_is_left_out(dlq, tmp_path):
    leave(dlq, retries=1)
    shutil.copytree(dlq.recorder_dir, tmp_path / "copy")
    assert total(dlq).letters == 1
    # As if that recovery had been killed before it marked the message.
    shutil.copytree(tmp_path / "copy", dlq.recorder_dir, dirs_exist_ok=True)
    found = total(dlq)
    assert (found.letters, found.ended) == (0, 1)


def test_a_second_message_with_the_same_id_that_is_lost_too_is_another_attempt(dlq):
    for _ in range(2):
        leave(dlq)
        assert total(dlq).letters == 1
    assert dlq.store.letters.get("one").attempt_count == 2


def test_a_run_whose_end_is_in_the_spool_is_left_out(dlq):
    """Its worker kept the letter while the store was away, and was killed before it marked the message."""
    leave(dlq)
    failed = attempt(failed_at=datetime.now(timezone.utc))
    dlq.spool.append([letter("one", failed, task="shop.charge")])
    dlq.spool.close()
    found = total(dlq)
    assert (found.letters, found.ended) == (0, 1)
    stored = dlq.store.letters.get("one")
    assert (stored.reason, stored.attempt_count) == (Reason.TERMINAL, 1)


def test_a_message_that_the_broker_may_still_have_waits(dlq):
    now = datetime.now(timezone.utc)
    leave(dlq, acknowledged=False)
    early = total(dlq)
    assert (early.letters, early.waiting) == (0, 1)
    [report] = early.reports
    assert (report.kind, report.worker, report.messages) == (ReportKind.WAITING, "w@host", 1)
    assert report.since >= now
    assert report.about == next(look(dlq.recorder_dir)).path.name
    assert dlq.store.letters.get("one") is None
    later = recovery_at(dlq, now + timedelta(seconds=dlq.hold.given_back_after_s + 1))
    assert sum(later.run(lambda: dlq.store), Recovered()).letters == 1
    assert "may not have been acknowledged" in dlq.store.letters.get("one").explanation.evidence


@pytest.mark.parametrize(("acknowledged", "waiting"), [(False, 1), (True, 0)])
def test_a_worker_that_has_just_begun_waits_for_what_its_queues_may_hold(
    dlq, acknowledged, waiting
):
    leave(dlq, acknowledged=acknowledged)
    now = datetime.now(timezone.utc) + timedelta(hours=3)
    recovery, began_at = recovery_at(dlq, now), now - timedelta(seconds=SETTLED_S - 1)
    found = sum(recovery.run(lambda: dlq.store, began_at=began_at), Recovered())
    assert (found.waiting, found.letters) == (waiting, 1 - waiting)
    began_at -= timedelta(seconds=2)
    assert sum(recovery.run(lambda: dlq.store, began_at=began_at), Recovered()).waiting == 0
    assert dlq.store.letters.get("one").reason is Reason.LOST


def test_a_message_that_came_again_and_succeeded_is_left_out(dlq):
    from celery_dlq.model.worker import Delivery

    leave(dlq, acknowledged=False)
    later = datetime.now(timezone.utc) + timedelta(seconds=1)
    dlq.store.deliveries.put(
        Delivery(
            task_id="one", task="shop.charge", redrive=0, attempt=1, number=2, started_at=later,
            worker="v@host", process="", alone=False, death="",
        )
    )  # fmt: skip
    dlq.store.letters.record_outcomes(
        [Outcome(task_id="one", redrive=0, succeeded_at=later, worker="v@host")]
    )
    assert dlq.store.deliveries.find("one", "shop.charge") == ()
    found = total(dlq)
    assert (found.letters, found.ended, found.waiting) == (0, 1, 0)
    assert dlq.store.letters.get("one") is None


def test_a_body_that_could_run_code_is_not_read(dlq):
    leave(dlq, content_type="application/x-python-serialize", body=b"cos\nsystem\n(S'false'\ntR.")
    assert total(dlq).letters == 1
    letter = dlq.store.letters.get("one")
    assert (letter.args, letter.task) == (None, "shop.charge")


def test_a_success_in_the_result_backend_is_an_end(dlq, app):
    app.conf.result_backend = "cache+memory://"
    leave(dlq)
    app.backend.mark_as_done("one", 1)
    found = total(dlq)
    assert (found.letters, found.ended) == (0, 1)


def test_a_success_closes_the_letter_whenever_it_happened(dlq):
    leave(dlq)
    succeeded_at = datetime.now(timezone.utc) + timedelta(seconds=1)
    assert total(dlq).letters == 1
    dlq.store.letters.record_outcomes(
        [Outcome(task_id="one", redrive=0, succeeded_at=succeeded_at, worker="v@host")]
    )
    assert dlq.store.letters.get("one").state is State.RESOLVED


def recovered(dlq, **where):
    """Recover while the broker has messages there, by their tags."""
    recovery = Recovery(
        dlq.app, dlq, dlq.recorder_dir, save=dlq.store_records, put_aside=_killed,
        give_back=lambda _: where,
    )  # fmt: skip
    return sum(recovery.run(lambda: dlq.store), Recovered())


@pytest.mark.parametrize("place", [Whereabouts.GIVEN_BACK, Whereabouts.ELSEWHERE])
def test_a_message_that_the_broker_delivers_again_has_no_letter(dlq, place):
    leave(dlq, acknowledged=False, properties={"delivery_tag": "t"})
    assert recovered(dlq, t=place) == Recovered(processes=1)
    assert dlq.store.letters.get("one") is None
    assert list(look(dlq.recorder_dir)) == []


def test_a_message_that_the_broker_has_forgotten_is_a_letter_at_once(dlq):
    leave(dlq, acknowledged=False, properties={"delivery_tag": "t"})
    assert recovered(dlq).waiting == 1
    assert recovered(dlq, t=Whereabouts.ACKNOWLEDGED).letters == 1
    assert dlq.store.letters.get("one").reason is Reason.LOST


def test_a_look_leaves_out_what_was_seen_before_and_what_another_machine_wrote(dlq):
    recovery = recovery_at(dlq, datetime.now(timezone.utc))
    leave(dlq, acknowledged=False)
    assert sum(recovery.run(lambda: dlq.store), Recovered()).waiting == 1
    assert [*recovery.run(lambda: dlq.store, only_new=True)] == []
    leave(dlq, task_id="two")
    leave(dlq, task_id="three")
    elsewhere = sorted(dlq.recorder_dir.glob("[!.]*"), key=lambda path: path.stat().st_ctime)[-1]
    owner = (elsewhere / "owner.json").read_text()
    (elsewhere / "owner.json").write_text(owner.replace(boot_of(identity()), "another-boot"))
    found = sum(recovery.run(lambda: dlq.store, only_new=True), Recovered())
    assert (found.processes, found.letters) == (1, 1)


def test_the_leases_of_a_killed_worker_are_free(dlq):
    dlq.store.leases.take("upkeep", holder=f"{identity()}/1", seconds=60)
    leave(dlq)
    total(dlq)
    assert dlq.store.leases.to_do("upkeep").lease_free_in_s == 0.0


def test_a_body_that_had_returned_has_no_letter(dlq, monkeypatch):
    leave(dlq)
    leave(dlq, task_id="two")
    monkeypatch.setattr("celery_dlq.recorder.files.returned_in", lambda _: frozenset({(7, "one")}))
    found = total(dlq)
    assert (found.letters, found.ended) == (1, 1)
    assert dlq.store.letters.get("one") is None
    assert dlq.store.letters.get("two").reason is Reason.LOST


def test_a_look_comes_back_to_a_process_whose_pool_had_outlived_it(dlq, monkeypatch):
    runs = [True]
    monkeypatch.setattr("celery_dlq.upkeep.recovery.pool_may_run", lambda _: runs[0])
    leave(dlq, acknowledged=False)
    [directory] = dlq.recorder_dir.glob("[!.]*")
    Tags(directory, "here").add("tag")
    recovery = recovery_at(dlq, datetime.now(timezone.utc))

    def look_again():
        return sum(recovery.run(lambda: dlq.store, only_new=True), Recovered()).processes

    assert [look_again() for _ in range(5)] == [1, 0, 0, 0, 0]
    runs[0] = False
    assert look_again() == 1


def test_messages_that_could_not_be_given_back_are_tried_again_after_pauses_that_double(dlq):
    leave(dlq, acknowledged=False, properties={"delivery_tag": "tag"})
    [directory] = dlq.recorder_dir.glob("[!.]*")
    Tags(directory, "here").add("tag")
    is_away, tried = [True], []

    def give_back(found):
        tried.append(number)
        if is_away[0]:
            return {}
        forget_noted(found.directory, "*")
        return {"tag": Whereabouts.GIVEN_BACK}

    recovery = Recovery(
        dlq.app, dlq, dlq.recorder_dir, save=dlq.store_records, put_aside=_killed,
        give_back=give_back,
    )  # fmt: skip
    for number in range(20):
        is_away[0] = number < 5
        list(recovery.run(lambda: dlq.store, only_new=True))
    assert tried == [0, 1, 2, 4, 8]
    assert list(look(dlq.recorder_dir)) == []


def test_a_message_that_cannot_become_a_letter_stays_and_the_others_become_letters(
    dlq, monkeypatch, caplog
):
    def make(message, *args, **options):
        if message.headers["id"] == "odd":
            raise ValueError("a bug")
        return letter_of_lost(message, *args, **options)

    recorder = FlightRecorder(dlq.recorder_dir, worker="w@host")
    for task_id in ("one", "odd", "two"):
        recorder.record(sent(task_id), "shop.charge", 7)
    recorder.confirm()
    recorder._own.close()
    leave(dlq, task_id="three")
    monkeypatch.setattr("celery_dlq.upkeep.recovery.letter_of_lost", make)
    found = total(dlq)
    assert found.letters == 3
    [report] = found.reports
    assert report.kind is ReportKind.STUCK
    assert report.why == "the message odd of shop.charge: ValueError('a bug')"
    assert report.why in caplog.text
    assert total(dlq).letters == 0
    monkeypatch.undo()
    assert total(dlq).letters == 1
    assert list(look(dlq.recorder_dir)) == []


def test_a_directory_that_cannot_be_recovered_stays_and_the_others_are_recovered(dlq, monkeypatch):
    def returned_in(directory):
        if directory == odd:
            raise ValueError("a bug")
        return frozenset()

    for task_id in ("one", "two", "three"):
        leave(dlq, task_id=task_id)
    odd, *_ = sorted(dlq.recorder_dir.glob("[!.]*"))
    monkeypatch.setattr("celery_dlq.recorder.files.returned_in", returned_in)
    found = total(dlq)
    assert (found.letters, found.failed) == (2, (odd,))
    assert found.reports[0].why == "ValueError: a bug"
