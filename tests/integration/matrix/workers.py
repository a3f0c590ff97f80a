"""Modes: what happens to the worker, its connections, and its result backend."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from matrix.bodies import LOST_WORKER, sends
from matrix.mode import BROKERS, CAN_CANCEL, POOLS, End, Mode, done, letter

from celery_dlq.model.states import Reason

#: Seconds until the time of a message with an ETA.
_LATER_S = 4

_LOST = letter(Reason.LOST, "celery_dlq.errors.TaskLost", result="PENDING")
#: Solo has no time to acknowledge before it runs a task: its early acknowledgement comes as late.
_NOT_LOST_ON_SOLO = {"solo": done(runs=2)}
_BACK = {
    "plain": "Delivered again: at once by RabbitMQ, after the visibility timeout by Redis.",
    "ours": "Delivered again: at once, also on Redis if a worker runs or starts on that machine; no letter.",
}
_RETURNED = {
    "plain": "Goes back to the queue.",
    "ours": "The same; no letter.",
}

_NO_CANCEL = "Threads and solo cannot end a task: on threads it continues, on solo it fails."


def _held(scene: str, title: str, **words: Any) -> Iterator[Mode]:
    """Messages that the worker has taken and not begun."""
    for late in ("", "-late"):
        yield Mode(
            id=f"{scene}-prefetched{late}".replace("_", "-"), scene=scene, part="prefetched",
            title=f"{title}: a prefetched message{_ACK[late]}",
            send=sends(f"proj.succeed{late}"), end=done(), **words,
        )  # fmt: skip
    yield Mode(
        id=f"{scene}-eta".replace("_", "-"), scene=scene, part="eta",
        title=f"{title}: a message with an ETA",
        send=sends("proj.succeed", countdown=_LATER_S), end=done(), **words,
    )  # fmt: skip


_ACK = {"": ", acknowledged early", "-late": ", acknowledged late"}


def _running(scene: str, title: str, late: str, end: End, **options: Any) -> Mode:
    return Mode(
        id=f"{scene}-running{late}".replace("_", "-"), scene=scene, part="running",
        title=f"{title}: a running task{_ACK[late]}",
        send=sends(f"matrix.blocks{late}"), end=end, **options,
    )  # fmt: skip


def _killed() -> Iterator[Mode]:
    for scene, title in (
        ("killed", "The worker is killed (SIGKILL)"),
        ("container_stopped", "SIGTERM, and SIGKILL before its tasks have ended"),
    ):
        yield _running(
            scene, title, "", _LOST, other_ends=_NOT_LOST_ON_SOLO,
            plain="Lost: it was acknowledged before it ran. Solo acknowledges after it, whatever is set.",
            ours="A letter, from the files of the flight recorder.",
        )  # fmt: skip
        yield _running(scene, title, "-late", done(runs=2), **_BACK)
        yield from _held(scene, title, **_BACK)


def _shutdowns() -> Iterator[Mode]:
    warm = "Warm shutdown (SIGTERM)"
    ends = {"plain": "It comes to its end.", "ours": "The same."}
    for late in ("", "-late"):
        yield _running("warm_shutdown", warm, late, done(), **ends)
    yield Mode(
        id="warm-shutdown-failing", scene="warm_shutdown", part="running",
        title=f"{warm}: a running task that fails", send=sends("matrix.blocks_and_fails"),
        end=letter(Reason.TERMINAL, "ValueError"),
        plain="The result is FAILURE, and the message is gone.", ours="A letter.",
    )  # fmt: skip
    yield from _held("warm_shutdown", warm, **_RETURNED)

    cold = "Cold shutdown (SIGQUIT)"
    cancelled = letter(Reason.CANCELLED, attempts=None, result=None)
    # Celery raises NotImplementedError in its signal handler: on solo into the task's body.
    goes_on = {pool: done() for pool in POOLS if pool not in CAN_CANCEL}
    words = {
        "plain": f"Lost: the result says RETRY, and nothing is sent. {_NO_CANCEL}",
        "ours": "A letter: the message was acknowledged before. On threads and solo it comes to its end.",
    }
    back = {
        "plain": f"Goes back to the queue; on gevent acknowledged, and lost. {_NO_CANCEL}",
        "ours": "Goes back to the queue; no letter. On threads and solo it comes to its end.",
    }
    yield _running("cold_shutdown", cold, "", cancelled, **words, other_ends=goes_on)
    yield _running("cold_shutdown", cold, "-late", done(runs=2), **back, other_ends=goes_on)
    yield from _held("cold_shutdown", cold, **_RETURNED)

    soft = "Soft shutdown (SIGQUIT, `worker_soft_shutdown_timeout`)"
    yield Mode(
        id="soft-shutdown-in-time", scene="soft_shutdown", part="running",
        title=f"{soft}: a running task that ends in time", send=sends("matrix.sleeps", 2),
        end=done(), ours="Done; no letter.",
        plain="It comes to its end; it is announced as retried all the same. Gevent allows it no time.",
    )  # fmt: skip
    yield _running("soft_shutdown", soft, "", cancelled, **words, other_ends=goes_on)


def _connections() -> Iterator[Mode]:
    title = "The connection to the broker breaks"
    again = {
        "plain": "Delivered again, so that it may run twice: by RabbitMQ, on Redis by the worker itself.",
        "ours": "Delivered again; it does not run again in this worker, except on solo. No letter.",
    }
    yield _running(
        "connection_lost", title, "", done(), other_ends={"solo": done(runs=None)}, brokers=BROKERS,
        plain="It comes to its end. Solo acknowledges after it, so it may run twice.", ours="The same.",
    )  # fmt: skip
    yield _running("connection_lost", title, "-late", done(runs=None), brokers=BROKERS, **again)
    yield Mode(
        id="connection-lost-failing", scene="connection_lost", part="running",
        title=f"{title}: a running task that fails, acknowledged late",
        send=sends("matrix.blocks_and_fails-late"),
        end=letter(Reason.TERMINAL, "ValueError", runs=None, attempts=None),
        plain="FAILURE, on RabbitMQ twice.", ours="One letter.", brokers=BROKERS,
    )  # fmt: skip
    # Celery restores the prefetch count in the greenlet that accepts a message, on a socket that another
    # one reads: the message is acknowledged, and never run. The setting keeps it from doing so.
    setting = "`worker_enable_prefetch_count_reduction=False`"
    back = {
        "plain": "Delivered again: at once by RabbitMQ, on Redis by the worker itself. On gevent and "
        f"RabbitMQ it may be lost without {setting}.",
        "ours": "The same; no letter.",
    }
    eta = next(mode for mode in _held("connection_lost", title, **back) if mode.part == "eta")
    yield replace(eta, end=done(runs=None), brokers=BROKERS)


# There, Celery's Redis backend subscribes to the result of a message, a retry too, before it is sent.
_NO_RETRY = "On gevent Celery cannot send a retry then: a letter at once, which says so."


def _backend() -> Iterator[Mode]:
    title = "The result backend is down"
    lost = "Acknowledged and gone, with a line in the log; no hook of the task is called."
    unsent = {
        id_: {"gevent": letter(Reason.REJECTED, exception, result=None)}
        for id_, exception in (("exhausted", "ConnectionError"), ("transient", "TimeoutError"))
    }
    for id_, what, task, end, ours in (
        ("success", "a task that succeeds", "proj.succeed",
         letter(Reason.UNSTORED), "A letter that says so; a redrive takes it only if it is named."),
        ("success-late", "a task that succeeds, acknowledged late", "proj.succeed-late",
         letter(Reason.UNSTORED), "A letter that says so; a redrive takes it only if it is named."),
        ("exception", "a task that raises", "proj.terminal",
         letter(Reason.TERMINAL, "ValueError"), "A letter with the task's own error."),
        ("exception-late", "a task that raises, acknowledged late", "proj.terminal-late",
         letter(Reason.TERMINAL, "ValueError"), "A letter with the task's own error."),
        ("exhausted", "a task that is retried until no attempt is left", "proj.exhausted",
         letter(Reason.EXHAUSTED, "ConnectionError", attempts=3, runs=3),
         f"Retried; then a letter with the task's own error. {_NO_RETRY}"),
        ("transient", "a task that is retried, and succeeds", "proj.recovers",
         letter(Reason.UNSTORED, attempts=None, runs=2),
         f"Retried; then a letter that says that it succeeded. {_NO_RETRY}"),
        ("reject", "a task that raises `Reject`", "proj.rejects",
         letter(Reason.REJECTED, "celery.exceptions.Reject"), "A letter."),
    ):  # fmt: skip
        yield Mode(
            id=f"backend-away-{id_}", title=f"{title}: {what}", scene="backend_away",
            send=sends(task), end=replace(end, result=None), plain=lost, ours=ours,
            other_ends=unsent.get(id_, {}),
        )  # fmt: skip
    only = {"pools": ("prefork",), "why_not": "there is no pool process to end"}
    yield Mode(
        id="backend-away-child-killed", title=f"{title}: a task whose pool process is killed",
        scene="backend_away", send=sends("proj.is_killed"),
        end=letter(Reason.POISON, LOST_WORKER, result=None), plain=lost, ours="A letter.", **only,
    )  # fmt: skip
    yield Mode(
        id="backend-away-hard-limit", title=f"{title}: a task that outruns its hard time limit",
        scene="backend_away", send=sends("matrix.outruns_the_hard_limit"),
        end=letter(Reason.TIMEOUT, result=None), plain=lost, ours="A letter.",
        pools=("prefork", "gevent"), why_not="there is no hard time limit",
    )  # fmt: skip


def _poison() -> Iterator[Mode]:
    yield Mode(
        id="worker-killer", scene="poison",
        title="A task, acknowledged late, kills every worker that runs it",
        send=sends("matrix.kills_its_worker"),
        end=letter(Reason.POISON, attempts=None, runs=3, result="FAILURE"),
        plain="Delivered again without end.",
        ours="Delivered `dlq_max_deliveries` times; then a letter, and the worker lives.",
    )  # fmt: skip


WORKERS: tuple[Mode, ...] = (
    *_killed(), *_shutdowns(), *_connections(), *_backend(), *_poison(),
)  # fmt: skip
