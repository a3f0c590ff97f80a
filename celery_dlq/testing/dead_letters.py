"""What a test says about the dead letters of its app."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

from celery_dlq.api.isolation import isolated
from celery_dlq.base.known import ends_with, unknown_task
from celery_dlq.base.redact import clip
from celery_dlq.classify import Decision
from celery_dlq.model.handling import is_of_user
from celery_dlq.model.letter import DeadLetter
from celery_dlq.model.states import State
from celery_dlq.store.base import Filter
from celery_dlq.testing.messages import Messages
from celery_dlq.view.text import counted
from celery_dlq.worker.body.judge import decide
from celery_dlq.worker.failure import type_name

#: Seconds between two looks at what has ended.
_LOOK_EVERY_S = 0.01

_DEAD = frozenset({State.DEAD})
#: A redriven letter in one of these states changes by itself.
_MOVING = frozenset({State.CLAIMED, State.REDRIVEN})

#: The most letters that a test may look at; the most lines of each list in a failed assertion; and the most
#: characters of a letter's message there.
_MOST, _LISTED, _CLIPPED = 1_000, 20, 200


@contextlib.contextmanager
def under_test(app: Any, directory: Path, settings: Mapping[str, Any]) -> Iterator[DeadLetters]:
    """The dead letters of ``app``, in this ``directory``; within this block the app has these settings over
    those of a test. Processes under one test share the directory."""
    directory.mkdir(parents=True, exist_ok=True)
    with isolated(app, {**_settings(directory), **settings}) as queue:
        # No retry waits, so none is parked.
        queue.hold = replace(queue.hold, at_most_s=math.inf)
        with Messages(app, directory / "messages.jsonl").followed() as messages:
            yield DeadLetters(queue, messages)


def _settings(directory: Path) -> dict[str, Any]:
    return {
        "task_protocol": 2,
        "worker_enable_remote_control": True,
        "worker_hijack_root_logger": False,
        "worker_redirect_stdouts": False,
        "dlq_store_url": f"sqlite:///{directory}/letters.sqlite3",
        "dlq_spool_dir": str(directory / "spool"),
        "dlq_stall_after": 0,
    }


class DeadLetters:
    """The dead letters of an app under test, and the messages that the test has sent.

    A ``task`` is the task itself. To choose letters and messages, its name is enough, or the last part of it.
    """

    #: Seconds after which :meth:`wait` fails.
    patience_s: float = 10.0

    def __init__(self, queue: Any, messages: Messages) -> None:
        #: The app's :class:`~celery_dlq.DeadLetterQueue`, on the store of the test.
        self.queue = queue
        self._messages = messages

    def run(self, task: Any, *args: Any, **kwargs: Any) -> DeadLetter | None:
        """Send a message of ``task``, and wait for its end. Returns its letter if it died."""
        __tracebackhide__ = True
        sent = task.delay(*args, **kwargs)
        self.wait()
        return next(iter(self._find(Filter(ids=(sent.id,), states=_DEAD))), None)

    def wait(self) -> None:
        """Wait until every message has ended that the app has sent: with a result, or in a letter.

        :raises AssertionError: one of them has not ended after :attr:`patience_s`.
        """
        __tracebackhide__ = True
        deadline = time.monotonic() + self.patience_s
        while going := [*self._running(), *map(_line, self._find(Filter(states=_MOVING)))]:
            if time.monotonic() > deadline:
                raise AssertionError(
                    f"these messages have not ended after {self.patience_s:g} s; set patience_s if they need "
                    f"longer:\n{_lines(going)}"
                )
            time.sleep(_LOOK_EVERY_S)

    def letters(self, task: Any = None) -> list[DeadLetter]:
        """The dead letters, of ``task`` or of all tasks, the oldest first; waits for the messages first."""
        __tracebackhide__ = True
        self.wait()
        return self._find(Filter(task=self._task(task), states=_DEAD))

    def assert_dead(
        self,
        task: Any,
        *,
        reason: Any = None,
        exception: type[BaseException] | str | None = None,
        count: int = 1,
    ) -> DeadLetter:
        """Assert that exactly ``count`` messages of ``task`` died, for this reason and with this exception:
        the type itself, or its name in full or in its last parts. Returns the newest letter.

        :raises ValueError: ``count`` is 0. To say that none died: ``assert not dlq.letters(task)``.
        """
        __tracebackhide__ = True
        if count < 1:
            raise ValueError("to say that none died, write: assert not dlq.letters(task)")
        self.wait()
        wanted = Filter(
            task=self._task(task), reason=reason, exception=_name(exception), states=_DEAD
        )
        found = self._find(wanted)
        if len(found) != count:
            words = {name: value for name, value in wanted.to_dict().items() if name != "states"}
            conditions = ", ".join(f"{name} {value}" for name, value in words.items())
            self._fail(f"{counted(count, 'dead letter')} with {conditions}", len(found))
        return found[-1]

    def assert_retried(self, task: Any, *, times: int | None = None) -> None:
        """Assert that the messages of ``task`` were retried: together this often, or at least once."""
        __tracebackhide__ = True
        self.wait()
        name = self._task(task) or ""
        found = sum(sent.retries for sent in self._messages if ends_with(sent.task, name))
        if found != times if times is not None else not found:
            wanted = "some retries" if times is None else counted(times, "retry", "retries")
            self._fail(f"{wanted} of {name}", found)

    def assert_verdict(
        self, exception: BaseException, verdict: str, *, rule: str | None = None, task: Any = None
    ) -> Decision:
        """Assert the verdict on ``exception``, and the rule that decides: with the rules of the app, and of
        ``task``, a task, if it is given. Nothing is sent."""
        __tracebackhide__ = True
        decision: Decision = (
            self.queue.classifier.decide(exception) if task is None else decide(task, exception)
        )
        if decision.verdict != verdict or rule not in (None, decision.rule):
            wanted = " by ".join(filter(None, (getattr(verdict, "value", verdict), rule)))
            raise AssertionError(
                f"expected {_name(type(exception))} to be {wanted}; it is {decision.verdict.value} by "
                f"{decision.rule} ({decision.evidence})"
            )
        return decision

    def _running(self) -> Iterator[object]:
        """The messages that have not ended; a parked one as its letter."""
        for sent in self._messages:
            letter = self.queue.store.letters.get(sent.id) if sent.may_run else None
            if sent.may_run and (letter is None or letter.state is State.PARKED):
                yield _line(letter) if letter else sent

    def _task(self, task: Any) -> str | None:
        """The name of ``task``.

        :raises ValueError: the app has no such task, and no message and no letter is of one.
        """
        name = _name(task)
        known = {*filter(is_of_user, self.queue.app.tasks), *self.queue.store.counts.names("task")}
        if unknown := unknown_task(name, known | {sent.task for sent in self._messages}):
            raise ValueError(unknown)
        return name

    def _find(self, wanted: Filter) -> list[DeadLetter]:
        """The whole letters, the oldest first."""
        letters = self.queue.store.letters
        page = letters.find(wanted, limit=_MOST).letters
        return sorted(
            (letters.get(one.task_id) for one in page), key=lambda one: one.last_failed_at
        )

    def _fail(self, expected: str, found: int) -> NoReturn:
        __tracebackhide__ = True
        died = [_line(letter) for letter in self._find(Filter(states=_DEAD))]
        raise AssertionError(
            f"expected {expected}; found {found}.\nDead letters:\n{_lines(died)}\n"
            f"Messages that were sent:\n{_lines(self._messages)}"
        )


def _name(given: Any) -> str | None:
    """The name of a task, or of an exception type; None and names are returned as they are."""
    return type_name(given) if isinstance(given, type) else getattr(given, "name", given)


def _line(letter: DeadLetter) -> str:
    return (
        f"{letter.task}[{letter.task_id}] is {letter.state.value}: reason {letter.reason.value}, "
        f"{letter.exception_type}: {clip(letter.message, _CLIPPED)}; rule {letter.explanation.rule}, "
        f"{counted(len(letter.attempts), 'attempt')}"
    )


def _lines(items: Iterable[object]) -> str:
    shown = [f"  {item}" for item in items]
    more = [f"  and {len(shown) - _LISTED} more"] if len(shown) > _LISTED else []
    return "\n".join([*shown[:_LISTED], *more]) or "  none"
