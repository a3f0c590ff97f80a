"""What a test says about the dead letters of its app."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from celery_dlq.api.queue import DeadLetterQueue
from celery_dlq.classify import Decision
from celery_dlq.known import ends_with
from celery_dlq.model.letter import DeadLetter
from celery_dlq.model.states import State
from celery_dlq.redact import clip
from celery_dlq.store.base import Filter
from celery_dlq.testing.isolation import isolated, settings_of_test
from celery_dlq.testing.messages import Messages
from celery_dlq.worker.body.answer import decide
from celery_dlq.worker.failure import type_name
from celery_dlq.worker.task import DLQTask

#: Seconds between two looks at what has ended.
_LOOK_EVERY_S = 0.01

#: A redriven letter in one of these states changes by itself.
_MOVING = frozenset({State.CLAIMED, State.REDRIVEN})

#: The most letters that a test may look at.
_MOST = 1_000

#: The most letters, and messages, of each failed assertion; and the most characters of a letter's message.
_LISTED, _CLIPPED = 20, 200


@contextlib.contextmanager
def under_test(
    app: Any,
    directory: Path,
    settings: Mapping[str, Any],
    on_new_queue: Callable[[str], object] = lambda _: None,
) -> Iterator[DeadLetters]:
    """The dead letters of ``app``, in this ``directory``; within this block the app has these settings over
    those of a test. Processes under one test share the directory."""
    directory.mkdir(parents=True, exist_ok=True)
    with isolated(app, {**settings_of_test(app, directory), **settings}) as queue:
        # No retry waits, so none is parked.
        queue.hold = replace(queue.hold, at_most_s=math.inf)
        with Messages(app, directory / "messages.jsonl", on_new_queue).followed() as messages:
            yield DeadLetters(queue, messages)


class DeadLetters:
    """The dead letters of an app under test, and the messages that the test has sent.

    ``task`` is everywhere a task, or its name in full or in its last parts.
    """

    #: Seconds after which :meth:`wait` fails.
    patience_s: float = 10.0

    def __init__(self, queue: DeadLetterQueue, messages: Messages) -> None:
        #: The Python API of the app's dead-letter queue, on the store of the test.
        self.queue = queue
        self._messages = messages

    def run(self, task: Any, *args: Any, **kwargs: Any) -> DeadLetter | None:
        """Send a message of ``task``, and wait for its end. Returns its letter if it died."""
        sent = task.delay(*args, **kwargs)
        self.wait()
        return next((one for one in self.letters() if one.task_id == sent.id), None)

    def wait(self) -> None:
        """Wait until every message that the app has sent has ended: with a result, or in a letter.

        :raises AssertionError: one of them has not ended after :attr:`patience_s`.
        """
        __tracebackhide__ = True
        deadline = time.monotonic() + self.patience_s
        while going := self._going():
            if time.monotonic() > deadline:
                raise AssertionError(
                    f"after {self.patience_s:g} s these messages have not ended; raise patience_s if they "
                    f"need longer:\n{_lines(going)}"
                )
            time.sleep(_LOOK_EVERY_S)

    def letters(self, task: Any = None) -> list[DeadLetter]:
        """The dead letters, of ``task`` or of all tasks, the oldest first; waits for the messages first."""
        __tracebackhide__ = True
        self.wait()
        found = self._find(frozenset({State.DEAD}))
        return [one for one in found if task is None or _is_of(one.task, task)]

    def assert_dead(
        self,
        task: Any,
        *,
        reason: str | None = None,
        exception: type[BaseException] | str | None = None,
        count: int = 1,
    ) -> DeadLetter:
        """Assert that exactly ``count`` messages of ``task`` died, for this reason and with this exception:
        the type itself, or its name in full or in its last parts. Returns the newest letter."""
        __tracebackhide__ = True
        assert count > 0, "to say that none died, write: assert not dlq.letters(task)"  # noqa: S101
        died = self.letters(task)
        found = [one for one in died if _fits(one, reason, exception)]
        if len(found) != count:
            conditions = [("reason", reason), ("exception", exception and _exception(exception))]
            wanted = "".join(f", {name} {_word(value)}" for name, value in conditions if value)
            raise AssertionError(
                f"expected {count} dead letters of {_task(task)}{wanted}; found {len(found)}.\n"
                + self._account()
            )
        return found[-1]

    def assert_retried(self, task: Any, *, times: int | None = None) -> None:
        """Assert that the messages of ``task`` were retried: together this often, or at least once."""
        __tracebackhide__ = True
        self.wait()
        found = sum(sent.retries for sent in self._messages if _is_of(sent.task, task))
        if found != times if times is not None else not found:
            wanted = "at least one retry" if times is None else f"{times} retries"
            raise AssertionError(
                f"expected {wanted} of {_task(task)}; found {found}.\n" + self._account()
            )

    def assert_verdict(
        self, exception: BaseException, verdict: str, *, rule: str | None = None, task: Any = None
    ) -> Decision:
        """Assert the verdict on ``exception``, and the rule that decides: of ``task`` with its own rules, or
        else of the app. Nothing is sent."""
        __tracebackhide__ = True
        decision = self._decide(exception, task)
        if decision.verdict != verdict or rule not in (None, decision.rule):
            wanted = _word(verdict) + (f" by {rule}" if rule else "")
            raise AssertionError(
                f"expected {type_name(type(exception))} to be {wanted}; it is {decision.verdict.value} by "
                f"{decision.rule} ({decision.evidence})"
            )
        return decision

    def _decide(self, exception: BaseException, task: Any) -> Decision:
        if task is None:
            return self.queue.classifier.decide(exception)
        found = [one for name, one in self.queue.app.tasks.items() if _is_of(name, task)]
        if len(found) != 1 or not isinstance(found[0], DLQTask):
            raise AssertionError(
                f"{_task(task)} is not the name of one task on DLQTask in this app, whose rules would judge"
            )
        return decide(found[0], exception)

    def _going(self) -> list[object]:
        """The messages and letters that have not ended."""
        going: list[object] = []
        for sent in self._messages:
            if not sent.may_run:
                continue
            letter = self.queue.store.letters.get(sent.id)
            if letter is None or letter.state is State.PARKED:
                going.append(_line(letter) if letter else sent)
        return [*going, *map(_line, self._find(_MOVING))]

    def _find(self, states: frozenset[State]) -> list[DeadLetter]:
        """The whole letters in these states, the oldest first."""
        letters = self.queue.store.letters
        page = letters.find(Filter(states=states), limit=_MOST).letters
        whole = (letters.get(one.task_id) for one in page)
        return sorted((one for one in whole if one), key=lambda one: one.last_failed_at)

    def _account(self) -> str:
        """What is there instead of what a test expected."""
        died = [_line(letter) for letter in self._find(frozenset({State.DEAD}))]
        return f"Dead letters:\n{_lines(died)}\nMessages that were sent:\n{_lines(self._messages)}"


def _task(given: Any) -> str:
    return str(getattr(given, "name", given))


def _is_of(name: str, task: Any) -> bool:
    return ends_with(name, _task(task))


def _exception(given: type[BaseException] | str) -> str:
    return given if isinstance(given, str) else type_name(given)


def _word(value: Any) -> str:
    return str(getattr(value, "value", value))


def _fits(
    letter: DeadLetter, reason: str | None, exception: type[BaseException] | str | None
) -> bool:
    if reason is not None and letter.reason != reason:
        return False
    return exception is None or ends_with(letter.exception_type, _exception(exception))


def _line(letter: DeadLetter) -> str:
    runs, rule = len(letter.attempts), letter.explanation.rule
    return (
        f"{letter.task}[{letter.task_id}] is {letter.state.value}: reason {letter.reason.value}, "
        f"{letter.exception_type}: {clip(letter.message, _CLIPPED)}; rule {rule}, {runs} attempts"
    )


def _lines(items: Iterable[object]) -> str:
    shown = [f"  {item}" for item in items]
    more = [f"  and {len(shown) - _LISTED} more"] if len(shown) > _LISTED else []
    return "\n".join([*shown[:_LISTED], *more]) or "  none"
