"""``dlq where``: finds a message, wherever it is. Each source is asked by itself, and may fail by itself."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from enum import Enum
from pathlib import Path

import click
from celery import states
from celery.backends.base import DisabledBackend

from celery_dlq.cli.doctor import said
from celery_dlq.cli.doctor.app import sent_to
from celery_dlq.cli.doctor.broker import answers_of_workers, no_remote_control
from celery_dlq.cli.exits import for_app
from celery_dlq.cli.options import format_option
from celery_dlq.cli.screens.letter import next_step
from celery_dlq.cli.screens.parts import Column, Table
from celery_dlq.cli.session import Session, pass_session
from celery_dlq.errors import CeleryDLQError, UnknownLetter
from celery_dlq.model.letter import DeadLetter
from celery_dlq.model.states import State
from celery_dlq.recorder.files import FilesState, look
from celery_dlq.recorder.segment import SUFFIX, message_from, read
from celery_dlq.redrive.broker.queues import InRedis, open_presence
from celery_dlq.spool.segment import decode
from celery_dlq.view import times
from celery_dlq.view.letters import sent_when


class Place(str, Enum):
    """Where a message is. If several sources know it, the first of these is the answer."""

    RUNNING = "running"
    RESERVED = "reserved"
    LETTER = "dead letter"
    PARKED = "parked"
    CLAIMED = "claimed"
    QUEUED = "queued"
    TAKEN = "taken"
    SENT_BACK = "sent back"
    SPOOLED = "spooled"
    RECORDED = "recorded"
    DONE = "done"
    DISCARDED = "discarded"
    DROPPED = "dropped"
    FAILED = "failed"
    RETRIED = "waits for a retry"
    UNKNOWN = "unknown"


_OF_STATE = {
    State.DEAD: Place.LETTER,
    State.CLAIMED: Place.CLAIMED,
    State.REDRIVEN: Place.SENT_BACK,
    State.RESOLVED: Place.DONE,
    State.DISCARDED: Place.DISCARDED,
    State.PARKED: Place.PARKED,
}

#: The states of Celery that say where a message is.
_OF_RESULT = {
    states.SUCCESS: Place.DONE,
    states.FAILURE: Place.FAILED,
    states.REVOKED: Place.DROPPED,
    states.RETRY: Place.RETRIED,
    states.STARTED: Place.RUNNING,
}

_STEPS = {
    Place.RUNNING: "wait until it ends",
    Place.RESERVED: "it begins when the worker has a free slot, or when it is due",
    Place.QUEUED: "a worker that consumes this queue takes it; to see whether one does: {doctor}",
    Place.TAKEN: "the worker that has it runs it; if that worker is gone, it comes back after the "
    "visibility timeout, or within seconds if a worker of its machine runs",
    Place.SPOOLED: "a worker drains the spool when the store is back; to do it now: {recover}",
    Place.RECORDED: "a worker on this machine recovers it; to do it now: {recover}",
    Place.FAILED: "it failed, and there is no letter: its task is not on DLQTask, or the letter was deleted",
    Place.RETRIED: "its retry is with the broker",
    Place.UNKNOWN: "no source knows it; check the id, and that -A names the app that sent it. RabbitMQ and "
    "Amazon SQS cannot be asked for a message: it may wait in a queue there",
}


@dataclass(frozen=True)
class Answer:
    """The answer of one source."""

    source: str
    #: None if the source does not know the message.
    place: Place | None
    text: str


@click.command("where")
@click.argument("task_id", metavar="ID")
@format_option
@pass_session
def where(session: Session, task_id: str, form: str) -> None:
    """Find a message, wherever it is.

    Asks the store, the workers, the broker (Redis), the result backend, and the spool and the flight recorder
    of this machine. Changes nothing.
    """
    task_id = _full_id(session, task_id)
    letter, answers = _asked(session, task_id)
    found = [answer.place for answer in answers if answer.place]
    place = min(found, key=list(Place).index, default=Place.UNKNOWN)
    known = letter is not None and place is _OF_STATE[letter.state]
    step = (
        next_step(letter, session.command)
        if letter is not None and known
        else _STEPS.get(place, "nothing").format(
            recover=session.command("recover"), doctor=session.command("doctor")
        )
    )
    record = {
        "task_id": task_id,
        "place": place.value,
        "next": step,
        "sources": [
            {"source": one.source, "place": one.place and one.place.value, "text": one.text}
            for one in answers
        ],
    }
    rows = [(one.source, one.place.value if one.place else "", one.text) for one in answers]
    columns = (Column("SOURCE", rigid=True), Column("PLACE", rigid=True), Column("", fold=True))
    session.screen.emit(
        form, record, f"{task_id}: {place.value}", Table(columns, rows), f"Next: {step}"
    )


def _full_id(session: Session, task_id: str) -> str:
    """The id that ``task_id`` is a prefix of in the store, or ``task_id`` itself.

    :raises AmbiguousId: several ids match.
    """
    try:
        return session.full_id(task_id)
    except UnknownLetter:
        return task_id


def _asked(session: Session, task_id: str) -> tuple[DeadLetter | None, list[Answer]]:
    """The letter in the store, and the answers of all sources."""
    letter = session.store.letters.get(task_id)
    sources: Mapping[str, Callable[[], Answer]] = {
        "workers": lambda: _workers(session, task_id),
        "broker": lambda: _broker(session, task_id, letter),
        "results": lambda: _results(session, task_id),
        "spool": lambda: _spool(session, task_id),
        "recorder": lambda: _recorder(session, task_id),
    }
    return letter, [_store(letter), *(_guarded(name, ask) for name, ask in sources.items())]


def _guarded(name: str, ask: Callable[[], Answer]) -> Answer:
    try:
        return ask()
    except Exception as error:  # noqa: BLE001 - the other sources are still asked
        return Answer(name, None, for_app(f"no answer ({said(error)})"))


def _store(letter: DeadLetter | None) -> Answer:
    if letter is None:
        return Answer("store", None, "no letter and no parked message has this id")
    at = times.iso(letter.last_failed_at)
    text = f"{letter.task}, {letter.reason.value}, {letter.exception_type}, last failed at {at}"
    if sent := sent_when(letter):
        text = (
            f"{letter.task} waits in the store to be sent: the broker did not take it from {letter.worker} "
            f"at {at} ({letter.exception_type}); a worker sends it {sent}"
        )
    elif letter.due_at is not None:
        text = f"{text}, due at {times.iso(letter.due_at)}"
    return Answer("store", _OF_STATE[letter.state], text)


def _workers(session: Session, task_id: str) -> Answer:
    app = session.cli.app
    if unanswered := no_remote_control(app):
        return Answer("workers", None, unanswered)
    answers, unread = answers_of_workers(app, "query_task", task_id)
    for node, held in sorted(answers.items()):
        if task_id in held:
            state, info = held[task_id]
            began = info.get("time_start")
            since = f" since {times.iso(_moment(began))}" if isinstance(began, float) else ""
            place = Place.RUNNING if state == "active" else Place.RESERVED
            return Answer(
                "workers", place, f"{node} has it{since}, process {info.get('worker_pid')}"
            )
    none = f"none of the {len(answers)} that answered has it" if answers else "no worker answered"
    return Answer("workers", None, "; ".join(filter(None, (none, unread))))


def _moment(timestamp: float) -> datetime:
    return datetime.fromtimestamp(timestamp, timezone.utc)


def _broker(session: Session, task_id: str, letter: DeadLetter | None) -> Answer:
    with contextlib.suppress(CeleryDLQError):  # the queues of the settings are still known
        session.load_tasks()
    queues = sorted({letter.queue} - {""} if letter else sent_to(session.cli.app))
    found = {}
    with open_presence(session.cli.app) as presence:
        for queue in queues:
            found[queue] = presence.find(queue, task_id)
    for queue, held in found.items():
        if held is InRedis.QUEUED:
            return Answer("broker", Place.QUEUED, f"in queue {queue}")
        if held is InRedis.TAKEN:
            return Answer("broker", Place.TAKEN, "received by a worker, and not acknowledged")
    if None in found.values():
        return Answer("broker", None, "it cannot be asked for a message, or holds too many")
    return Answer("broker", None, f"not in {', '.join(queues)}, and no worker holds it")


def _results(session: Session, task_id: str) -> Answer:
    backend = session.cli.app.backend
    if isinstance(backend, DisabledBackend):
        return Answer("results", None, "the app has no result backend")
    meta = backend.get_task_meta(task_id, cache=False)
    place, at = _OF_RESULT.get(meta["status"]), meta.get("date_done")
    text = f"{meta['status']} at {at}" if at else str(meta["status"])
    if place is None:
        text = "nothing is stored; it may be waiting, or its result is ignored or has expired"
    return Answer("results", place, text)


def _spool(session: Session, task_id: str) -> Answer:
    # Most lines need not be decoded.
    written = json.dumps(task_id).encode()
    for path in session.queue.spool.files():
        for line in path.read_bytes().splitlines():
            if written in line and _is_of(line, task_id):
                return Answer("spool", Place.SPOOLED, str(path))
    return Answer("spool", None, f"not in {session.queue.spool.directory} of this machine")


def _is_of(line: bytes, task_id: str) -> bool:
    try:
        return decode(line).task_id == task_id
    except ValueError:  # torn
        return False


def _recorder(session: Session, task_id: str) -> Answer:
    parent = session.queue.recorder_dir
    for left in look(parent):
        if left.state in (FilesState.IN_USE, FilesState.GONE) and task_id in _recorded(left.path):
            worker = left.owner.worker if left.owner else "a worker"
            if left.state is FilesState.IN_USE:
                return Answer("recorder", Place.RUNNING, f"{worker}, which lives, is running it")
            return Answer("recorder", Place.RECORDED, f"{worker}, which was killed, had it")
    return Answer("recorder", None, f"not in {parent} of this machine")


def _recorded(directory: Path) -> Iterator[str]:
    """The ids of the messages in the files of ``directory`` that have not ended."""
    for path in directory.glob(f"*{SUFFIX}"):
        for entry in read(path.read_bytes()).entries:
            message = message_from(
                entry.facts, entry.body, worker="", process="", marks=entry.marks
            )
            yield str(message.headers.get("id") or message.fields.get("id"))
