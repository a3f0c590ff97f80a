"""What a drill does to its messages. Each scenario sends some, does harm, and waits for their ends."""

from __future__ import annotations

import contextlib
import os
import signal
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from celery_dlq.drill.ground import PATIENCE_S, End, Ground
from celery_dlq.drill.process import TASKS, UNSENT, Body, Runs
from celery_dlq.model.states import Reason, State

#: Seconds that a task works while something happens to it, and for which a connection is cut.
_WORK_S, _CUT_S = 5.0, 3.0

#: Seconds in which an idle worker takes a message.
_TAKEN_S = 1.0

#: The hard time limit, and the work of a task that exceeds it.
_LIMIT_S, _TOO_LONG_S = 2.0, 20.0

#: Letters of the redrive that is killed, and how many have run when it is.
_LETTERS, _BEFORE_KILL = 20, 5


class LeftOut(Exception):
    """The scenario cannot happen here; the text says why."""


def _has_come(end: End) -> bool:
    return end.is_done or end.is_letter


def _is_sent_back(end: End) -> bool:
    return end.state is State.RESOLVED and end.finished == 1


def _ran_once(end: End) -> bool:
    return end.is_done and end.begun == 1


class Scenario(NamedTuple):
    """One thing that happens in production."""

    #: For people.
    title: str
    #: Does it; returns the ids of its messages.
    act: Callable[[Ground], Sequence[str]]
    #: Whether a message has ended as it should.
    is_right: Callable[[End], bool]
    #: Seconds in which the messages should have ended.
    patience_s: float = PATIENCE_S
    #: Whether a message has ended, rightly or not.
    is_final: Callable[[End], bool] = _has_come
    #: How many messages it sends.
    sends: int = 1


def _one(body: Body, *, late: bool = False) -> Callable[[Ground], Sequence[str]]:
    """Sends one message with this body."""
    return lambda ground: [ground.send(body, late=late)]


def _kill_process(ground: Ground) -> Sequence[str]:
    sent = _at_work(ground)
    pids = [pid for one in sent for pid in ground.plan.runs.pids(Runs.STARTED, one)]
    if ground.worker.pid in pids:
        raise LeftOut("tasks of this pool run in the worker's own process; see kill-worker")
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return sent


def _kill_worker(ground: Ground) -> Sequence[str]:
    running = _at_work(ground)
    reserved = [ground.send(Body.WORK, late=late) for late in TASKS]
    ground.sleep(_TAKEN_S)
    ground.worker.kill()
    ground.start_worker()
    return [*running, *reserved]


def _at_work(ground: Ground) -> Sequence[str]:
    """A message that is acknowledged early and one that is acknowledged late, whose tasks run."""
    sent = [ground.send(Body.WORK, late=late, seconds=_WORK_S) for late in TASKS]
    ground.started(*sent)
    return sent


def _exceed(ground: Ground) -> Sequence[str]:
    sent = ground.send(Body.WORK, seconds=_TOO_LONG_S, time_limit=_LIMIT_S)
    ground.started(sent)
    return [sent]


def _garble(ground: Ground) -> Sequence[str]:
    task_id = str(uuid.uuid4())
    ground.send_raw(b'[["half a message', {"id": task_id, "task": TASKS[False], "lang": "py"})
    return [task_id]


def _cut_store(ground: Ground) -> Sequence[str]:
    if ground.database is None:
        raise LeftOut("the store does not answer through a proxy, so it cannot be cut here")
    ground.database.cut()
    try:
        sent = ground.send(Body.FAIL)
        ground.started(sent)
        files = Path(ground.plan.spool_dir)
        ground.until(
            lambda: any(path.stat().st_size for path in files.glob("*.jsonl")),
            3 * ground.settings.store_timeout,
        )
    finally:
        ground.database.restore()
    return [sent]


def _cut_broker(ground: Ground) -> Sequence[str]:
    if ground.broker is None:
        raise LeftOut("the broker does not answer through a proxy, so it cannot be cut here")
    sent = _at_work(ground)
    ground.broker.cut()
    ground.sleep(_CUT_S)
    ground.broker.restore()
    return [*sent, ground.send(Body.WORK)]


def _cut_sender(ground: Ground) -> Sequence[str]:
    if ground.broker is None:
        raise LeftOut("the broker does not answer through a proxy, so it cannot be cut here")
    sent = [str(uuid.uuid4()) for _ in range(UNSENT)]
    ground.broker.cut()
    try:
        ground.send_apart(sent)
    finally:
        ground.broker.restore()
    return sent


def _kill_redrive(ground: Ground) -> Sequence[str]:
    sent = [ground.send(Body.HEAL, late=True) for _ in range(_LETTERS)]
    ground.until(lambda: all(end.is_letter for end in ground.ends(sent)))
    first, runs = ground.start_redrive(), ground.plan.runs
    ground.until(lambda: sum(bool(runs.pids(Runs.FINISHED, one)) for one in sent) >= _BEFORE_KILL)
    first.kill()
    ground.start_redrive()
    return sent


def _letter(reason: Reason) -> Callable[[End], bool]:
    return lambda end: end.is_letter and end.reason is reason


#: The scenarios, by the name that ``--only`` takes, in the order in which they run.
SCENARIOS: Mapping[str, Scenario] = {
    "fail": Scenario("a task fails for good", _one(Body.FAIL), _letter(Reason.TERMINAL)),
    "recover": Scenario("a task fails once, and recovers", _one(Body.RECOVER), lambda end: end.is_done),
    "kill-process": Scenario("a process of the pool is killed", _kill_process, _has_come, sends=2),
    "kill-worker": Scenario("the worker is killed", _kill_worker, _has_come, patience_s=90.0, sends=4),
    "poison": Scenario(
        "a task kills each process that runs it", _one(Body.DIE, late=True), _letter(Reason.POISON)
    ),
    "time-limit": Scenario("a task exceeds its time limit", _exceed, _letter(Reason.TIMEOUT)),
    "unreadable": Scenario("a message cannot be read", _garble, _letter(Reason.MALFORMED)),
    "store-cut": Scenario(
        "the store is away when a task fails", _cut_store, _letter(Reason.TERMINAL)
    ),
    "broker-cut": Scenario("the broker is away for 3 s", _cut_broker, _has_come, sends=3),
    "send-cut": Scenario(
        "messages are sent while the broker is away, with dlq_unsent", _cut_sender, _ran_once,
        patience_s=90.0, sends=UNSENT,
    ),
    "redrive-killed": Scenario(
        "a redrive is killed in the middle", _kill_redrive, _is_sent_back,
        patience_s=120.0, is_final=_is_sent_back, sends=_LETTERS,
    ),
}  # fmt: skip
