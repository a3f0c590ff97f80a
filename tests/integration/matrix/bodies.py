"""Modes: what happens in and around the body of a task."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from celery import chain, chord, group
from matrix.mode import End, Mode, Place, Watched, done, dropped, letter
from matrix.stage import Stage

from celery_dlq.model.states import Reason

LOST_WORKER = "billiard.exceptions.WorkerLostError"
_SENT = Callable[[Stage], Watched]


def sends(name: str, *args: Any, **options: Any) -> _SENT:
    """Sends the task ``name``."""
    return lambda stage: stage.task(name, *args, **options)


def both(id_: str, title: str, task: str, *args: Any, end: End, **options: Any) -> Iterator[Mode]:
    """The mode for a task that is acknowledged early, and the same acknowledged late."""
    late: dict[str, Any] = options.pop("late", {})
    early = Mode(id=id_, title=title, scene="calm", send=sends(task, *args), end=end, **options)
    yield early
    yield Mode(
        **{
            **vars(early),
            "id": f"{id_}-late",
            "title": f"{title}; acknowledged late",
            "send": sends(f"{task}-late", *args),
            **late,
        }
    )


one = partial(Mode, scene="calm")

_FAILS = "The result is FAILURE, and the message is gone."
_LETTER = "A letter; then the message is acknowledged."


def _endings() -> Iterator[Mode]:
    yield from both(
        "success", "It succeeds", "proj.succeed",
        end=done(), plain="The result is SUCCESS.", ours="The same.",
    )  # fmt: skip
    yield from both(
        "exception", "It raises an exception", "proj.terminal",
        end=letter(Reason.TERMINAL, "ValueError"), plain=_FAILS, ours=_LETTER,
    )  # fmt: skip
    yield one(
        id="throws", title="It raises one that its `throws` names", send=sends("matrix.throws"),
        end=letter(Reason.TERMINAL, "KeyError"), plain=_FAILS, ours=_LETTER,
    )  # fmt: skip
    yield from both(
        "unpicklable", "It raises one that cannot be pickled or printed", "proj.hostile",
        end=letter(Reason.TERMINAL, "proj.Hostile"),
        plain="The result is FAILURE with another exception in its place.",
        ours="A letter with its real type.",
    )  # fmt: skip
    yield one(
        id="huge-message", title="It raises one with a message of 5 MB", send=sends("proj.huge"),
        end=letter(Reason.TERMINAL, "ValueError"),
        plain="The result is FAILURE, of 5 MB.", ours="A letter with the message cut.",
    )  # fmt: skip
    yield from both(
        "unserialisable-result", "It returns what cannot be serialised", "proj.returns_a_file",
        end=letter(Reason.UNSTORED, "kombu.exceptions.EncodeError"),
        plain="The result is FAILURE, although the task did its work.",
        ours="A letter that says so; a redrive takes it only if it is named.",
    )  # fmt: skip
    yield one(
        id="unserialisable-ignored", title="The same, with `ignore_result`",
        # The message says it, too, as from the task's own delay(): Celery 5.6 takes its word over the task's.
        send=sends("proj.returns_a_file-ignored", ignore_result=True), end=done(result="PENDING"),
        plain="Done: no result is stored.", ours="The same.",
    )  # fmt: skip
    yield one(
        id="wrong-arguments", title="It is called with arguments that it does not accept",
        send=sends("proj.succeed", 1, 2, 3), end=letter(Reason.TERMINAL, "TypeError"),
        plain=_FAILS, ours=_LETTER,
    )  # fmt: skip


def _retries() -> Iterator[Mode]:
    yield from both(
        "transient", "It raises a transient exception, and succeeds when run again", "proj.recovers",
        end=done(runs=2), plain=_FAILS, ours="Retried; done.",
    )  # fmt: skip
    yield one(
        id="retry", title="It calls `retry()`, and succeeds when run again",
        send=sends("matrix.retries_once", 0), end=done(runs=2),
        plain="Retried; done.", ours="The same.",
    )  # fmt: skip
    yield one(
        id="retry-subsecond", title="The same with a countdown of 0.4 s",
        send=sends("matrix.retries_once", 0.4), end=done(runs=2),
        plain="Retried; on quorum queues the retry is refused and the message gone.",
        ours="Retried; done. On quorum queues the wait is none or a whole second.",
    )  # fmt: skip
    yield from both(
        "exhausted", "It raises a transient exception in every attempt", "proj.exhausted",
        end=letter(Reason.EXHAUSTED, "ConnectionError", attempts=3, runs=3),
        plain=_FAILS, ours="Retried; then a letter with every attempt.",
    )  # fmt: skip
    yield one(
        id="autoretry-exhausted", title="The same, named by `autoretry_for`",
        send=sends("matrix.autoretried"),
        end=letter(Reason.EXHAUSTED, "LookupError", attempts=3, runs=3),
        plain="Retried; then FAILURE, and the message is gone.",
        ours="Retried; then a letter with every attempt.",
    )  # fmt: skip
    yield from both(
        "retry-exhausted", "It calls `retry(exc=...)` until no attempt is left",
        "proj.retries_itself",
        end=letter(Reason.EXHAUSTED, "LookupError", attempts=2, runs=2),
        plain="Retried; then FAILURE, and the message is gone.",
        ours="Retried; then a letter with every attempt.",
    )  # fmt: skip
    yield one(
        id="retry-exhausted-without-exc", title="It calls `retry()` until no attempt is left",
        send=sends("matrix.retries_without_exc"),
        end=letter(
            Reason.EXHAUSTED, "celery.exceptions.MaxRetriesExceededError", attempts=2, runs=2
        ),
        plain="Retried; then FAILURE, and the message is gone.",
        ours="Retried; then a letter with every attempt.",
    )  # fmt: skip
    yield from both(
        "budget", "It raises a transient exception, and its retry budget is used up",
        "matrix.over_its_budget", end=letter(Reason.BUDGET, "ConnectionError"),
        plain=f"There is no such budget. {_FAILS}",
        ours="A letter at once, without a retry.",
    )  # fmt: skip
    yield from both(
        "retry-unpublished", "Its retry cannot be published", "matrix.retry_unpublishable",
        end=letter(Reason.REJECTED, result=None),
        plain="The message is rejected: gone on Redis, and on RabbitMQ without a dead-letter exchange.",
        ours="A letter.",
    )  # fmt: skip


def _limits() -> Iterator[Mode]:
    yield one(
        id="soft-limit", title="It outruns its soft time limit",
        send=sends("matrix.outruns_the_soft_limit"),
        end=letter(Reason.TERMINAL, "billiard.exceptions.SoftTimeLimitExceeded"),
        other_ends=dict.fromkeys(("threads", "solo", "gevent"), done()),
        plain=f"{_FAILS} The other pools have no soft limit.", ours=_LETTER,
    )  # fmt: skip
    yield from both(
        "hard-limit", "It outruns its hard time limit", "matrix.outruns_the_hard_limit",
        end=letter(Reason.TIMEOUT, "billiard.exceptions.TimeLimitExceeded"),
        other_ends=dict.fromkeys(("threads", "solo"), done()),
        plain=f"{_FAILS} Threads and solo have no limit.", ours=_LETTER,
    )  # fmt: skip


_PREFORK: dict[str, Any] = {
    "pools": ("prefork",),
    "why_not": "there is no pool process to die; the worker itself dies: see below",
}
# A process may be gone before Celery has heard that it began; then the next one gets the same delivery.
_DIES = letter(Reason.POISON, LOST_WORKER, runs=range(1, 3))
_DIES_THRICE = {
    "end": letter(Reason.POISON, attempts=None, runs=range(3, 7)),
    "plain": "Acknowledged and gone; with `reject_on_worker_lost` delivered again without end.",
    "ours": "Delivered again, at most `dlq_max_deliveries` times in all; then a letter.",
}


def _deaths() -> Iterator[Mode]:
    gone = {"plain": _FAILS, "ours": "A letter: the message was acknowledged before."}
    for id_, title, task, args in (
        ("child-sigkill", "Its pool process is killed (SIGKILL)", "proj.is_killed", ()),
        ("child-segfault", "It segfaults", "matrix.segfaults", ()),
        ("child-exit-1", "It calls `os._exit(1)`", "matrix.leaves", (1,)),
        ("child-exit-0", "It calls `os._exit(0)`", "matrix.leaves", (0,)),
    ):
        yield from both(id_, title, task, *args, end=_DIES, late=_DIES_THRICE, **gone, **_PREFORK)
    yield one(
        id="child-sigkill-not-requeued",
        title="Its pool process is killed; acknowledged late, `reject_on_worker_lost=False`",
        send=sends("proj.is_killed-once"), end=_DIES, plain=_FAILS, ours=_LETTER, **_PREFORK,
    )  # fmt: skip
    yield one(
        id="child-exit-after-success", title="Its process dies after its success was stored",
        send=sends("matrix.dies_of_its_success"), end=done(),
        plain="The result is SUCCESS from Celery 5.7 on; before, FAILURE.", ours="The same; no letter.",
        **_PREFORK,
    )  # fmt: skip


def _base_exceptions() -> Iterator[Mode]:
    for id_, title, task, exception, plain in (
        ("sys-exit", "It calls `sys.exit()`", "proj.exits", "SystemExit", _EXITS),
        ("keyboard-interrupt", "It raises `KeyboardInterrupt`", "matrix.interrupted",
         "KeyboardInterrupt", _EXITS),
        ("memory-error", "It raises `MemoryError`", "proj.eats_memory", "MemoryError",
         "The whole worker ends; with late acknowledgement the next one, too."),
        ("generator-exit", "It raises `GeneratorExit`", "matrix.generator_exit", "GeneratorExit",
         "FAILURE on prefork; elsewhere no result, no log, and acknowledged late it stays unacknowledged."),
        ("greenlet-exit", "It raises `GreenletExit`, as a library does that kills its greenlet",
         "matrix.greenlet_exit", "greenlet.GreenletExit",
         "On gevent it counts as a success without a result or a log; elsewhere as `GeneratorExit`."),
    ):  # fmt: skip
        end = letter(Reason.TERMINAL, exception)
        yield from both(id_, title, task, end=end, plain=plain, ours=_LETTER)
    yield one(
        id="gevent-timeout", title="It raises `gevent.Timeout` in every attempt",
        send=sends("matrix.gevent_timeout"),
        end=letter(Reason.EXHAUSTED, "gevent.timeout.Timeout", attempts=2, runs=2),
        plain="FAILURE with `MaybeEncodingError` on prefork; elsewhere as `GeneratorExit`.",
        ours="Retried; then a letter with every attempt.",
    )  # fmt: skip


def _forks() -> Iterator[Mode]:
    for id_, title, task in (
        ("fork-raises", "It forks, and its child raises a transient exception", "matrix.forks"),
        ("fork-returns", "It forks, and its child returns, too", "matrix.forks_and_both_return"),
    ):
        yield one(
            id=id_, title=title, send=sends(task), end=done(),
            plain="The child stores its end as the task's, and takes further tasks of the pool.",
            ours="Done: the child ends where it leaves the body, with the exit code of `multiprocessing`.",
        )  # fmt: skip


_EXITS = "The pool process or (solo) the worker ends; threads and gevent leave no trace of it."


def _control_flow() -> Iterator[Mode]:
    yield from both(
        "reject", "It raises `Reject`", "proj.rejects",
        end=letter(Reason.REJECTED, "celery.exceptions.Reject"),
        # Celery records no result of it before 5.7.
        end_before_5_7=letter(Reason.REJECTED, "celery.exceptions.Reject", result="PENDING"),
        plain="Gone on Redis; on RabbitMQ to the queue's dead-letter exchange.", ours="A letter.",
    )  # fmt: skip
    yield from both(
        "reject-requeue", "It raises `Reject(requeue=True)` once",
        "matrix.rejects_once_with_requeue",
        end=letter(Reason.REJECTED, "celery.exceptions.Reject", result=None),
        plain="Gone: it was acknowledged before.", ours="A letter.",
        late={
            "end": done(runs=2),
            "plain": "Delivered again at once.", "ours": "The same.",
        },
    )  # fmt: skip
    yield from both(
        "ignore", "It raises `Ignore`", "proj.ignores",
        end=dropped("PENDING", runs=1), plain="Dropped, as it is meant.", ours="The same.",
    )  # fmt: skip


def _hooks() -> Iterator[Mode]:
    yield from both(
        "before-start-raises", "Its `before_start` raises", "matrix.breaks_before",
        end=letter(Reason.TERMINAL, "ValueError"), plain=_FAILS, ours=_LETTER,
    )  # fmt: skip
    for name, task in (("on_success", "success"), ("after_return", "return")):
        preposition = "after" if name == "on_success" else "at"
        yield from both(
            f"{name.replace('_', '-')}-raises", f"Its `{name}` raises",
            f"matrix.breaks_{preposition}_{task}",
            end=done(),
            # Before 5.7 Celery ends the stored success once more, as a failure, with signals and errbacks;
            # a key-value backend as this one keeps the success.
            end_before_5_7=letter(Reason.UNSTORED, "ValueError", result="SUCCESS"),
            plain="Logged; the result is SUCCESS. Before Celery 5.7 it counts as failed, although it did "
            "its work.",
            ours="The same. Before Celery 5.7 a letter that says so; a redrive takes it only if it "
            "is named.",
        )  # fmt: skip
    yield from both(
        "on-failure-raises", "It fails, and its `on_failure` raises, too",
        "matrix.breaks_after_failure", end=letter(Reason.TERMINAL, "ValueError"),
        plain="FAILURE with the hook's error; on threads a late message stays unacknowledged; "
        "on solo the worker ends.",
        ours="A letter with the task's own error.",
    )  # fmt: skip
    yield one(
        id="link-unpublished", title="It succeeds; its `link` cannot be published",
        send=lambda stage: stage.task("proj.succeed", link=_unpublishable(stage)),
        end=letter(Reason.UNSTORED),
        plain="The result is FAILURE, although the task did its work.",
        ours="A letter that says so; a redrive takes it only if it is named.",
    )  # fmt: skip
    yield one(
        id="errback-unpublished", title="It fails; its `link_error` cannot be published",
        send=lambda stage: stage.task("proj.terminal", link_error=_unpublishable(stage)),
        end=letter(Reason.TERMINAL, "ValueError", result=None),
        plain="The result is FAILURE.", ours="A letter with the task's own error.",
    )  # fmt: skip


def _unpublishable(stage: Stage) -> Any:
    return stage.signature("proj.succeed").set(serializer="no such serializer")


def _canvases() -> Iterator[Mode]:
    yield one(
        id="chain-member", title="A member of a chain fails", send=_chain,
        end=letter(Reason.TERMINAL, "ValueError"),
        plain="FAILURE for it and for all that follow it, which are never sent.",
        ours="One letter; after a redrive, the chain continues.",
    )  # fmt: skip
    yield one(
        id="group-member", title="A member of a group fails", send=_group,
        end=letter(Reason.TERMINAL, "ValueError"), plain=_FAILS, ours="One letter.",
    )  # fmt: skip
    yield one(
        id="chord-header", title="A member of a chord's header fails", send=_chord_header,
        end=letter(Reason.TERMINAL, "ValueError"),
        plain="FAILURE for it and for the body, which is never sent.",
        ours="One letter; redriven, the chord completes.",
    )  # fmt: skip
    yield one(
        id="chord-body", title="The body of a chord fails", send=_chord_body,
        end=letter(Reason.TERMINAL, "ValueError"), plain=_FAILS, ours="One letter.",
    )  # fmt: skip


def _chain(stage: Stage) -> Watched:
    first, dying, last = (
        stage.signature("proj.succeed", 1),
        stage.signature("proj.terminal", immutable=True),
        stage.signature("proj.succeed", immutable=True),
    )
    dying.freeze()
    return stage.canvas(chain(first, dying, last, app=stage.project.app), dying.id)


def _group(stage: Stage) -> Watched:
    dying = stage.signature("proj.terminal")
    dying.freeze()
    members = [stage.signature("proj.succeed"), dying]
    return stage.canvas(group(members, app=stage.project.app), dying.id)


def _chord_header(stage: Stage) -> Watched:
    dying = stage.signature("proj.terminal")
    dying.freeze()
    members = [stage.signature("proj.succeed"), dying]
    whole = chord(members, stage.signature("proj.add"), app=stage.project.app)
    return stage.canvas(whole, dying.id)


def _chord_body(stage: Stage) -> Watched:
    dying = stage.signature("proj.terminal", immutable=True)
    dying.freeze()
    members = [stage.signature("proj.succeed"), stage.signature("proj.succeed")]
    return stage.canvas(chord(members, dying, app=stage.project.app), dying.id)


def _calls() -> Iterator[Mode]:
    raised: dict[str, Any] = {
        "scene": "without_worker", "send": _sent_by_the_scene, "end": End(Place.RAISED, runs=None),
    }  # fmt: skip
    yield Mode(
        id="apply", part="apply", title="`apply()` of a task that fails",
        plain="The caller gets the failure.", ours="The same; no letter.", **raised,
    )  # fmt: skip
    yield Mode(
        id="always-eager", part="always_eager", title="`delay()` with `task_always_eager`, and it fails",
        plain="The caller gets the failure.", ours="The same; no letter.", **raised,
    )  # fmt: skip
    yield Mode(
        id="direct-call", part="direct", title="A direct call, and it fails",
        plain="The caller gets the exception.", ours="The same; no letter.", **raised,
    )  # fmt: skip
    yield Mode(
        id="async-def", part="coroutine", title="The task is an `async def`",
        plain="Its body never runs; with `ignore_result` that counts as a success.",
        ours="Refused when it is registered.", **raised,
    )  # fmt: skip
    for how, title in (("apply", "`apply()`"), ("direct", "a direct call")):
        yield one(
            id=f"{how}-in-a-task", title=f"It calls a failing task by {title}, and succeeds",
            send=sends("matrix.calls_a_dying_task", how), end=done(),
            plain="The result is SUCCESS.", ours="The same; no letter.",
        )  # fmt: skip


def _sent_by_the_scene(stage: Stage) -> Watched:
    raise NotImplementedError("the scene sends all at once")


BODIES: tuple[Mode, ...] = (
    *_endings(), *_retries(), *_limits(), *_deaths(), *_base_exceptions(), *_forks(), *_control_flow(),
    *_hooks(), *_canvases(), *_calls(),
)  # fmt: skip
