"""Protocols for the parts that the worker uses and may not import: the composition root, the metrics, and the
capture of a consumer, which its requests use."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol

from celery_dlq.base.redact import Redactor
from celery_dlq.classify import Classifier
from celery_dlq.model.letter import DeadLetter, Outcome
from celery_dlq.model.states import Verdict
from celery_dlq.model.worker import Delivery
from celery_dlq.settings import Settings

if TYPE_CHECKING:
    from celery_dlq.recorder import FlightRecorder
    from celery_dlq.worker.broker_limits import Hold
    from celery_dlq.worker.grouping import Grouping


class Meter(Protocol):
    """The metrics of a worker. Nothing here raises: a failure to count must not stop the work."""

    def dead_lettered(self, letter: DeadLetter, safe: Callable[[], object]) -> Callable[[], object]:
        """Count ``letter``; returns the function to call instead of ``safe`` once the letter is durable."""

    def retried(self, task: str, rule: str) -> None:
        """Count an automatic retry of ``task``, for which ``rule`` decided."""


class Wiring(Protocol):
    """An app's parts, as tasks and their requests use them."""

    @property
    def settings(self) -> Settings:
        """The app's settings.

        :raises SettingsError: one of them is not valid. No worker starts with it.
        """

    @property
    def task_settings(self) -> Settings:
        """The app's settings, with the default in place of each one that is not valid."""

    def report_settings(self) -> None:
        """Log, once, which settings are not valid."""

    @property
    def classifier(self) -> Classifier:
        """The app's rules, then the built-in ones."""

    @property
    def grouping(self) -> Grouping:
        """The user's recipe for fingerprints, or the built-in one."""

    @property
    def redactor(self) -> Redactor:
        """Hides secrets in everything that is shown."""

    @property
    def hold(self) -> Hold:
        """How long the broker may hold a retry."""

    @property
    def meter(self) -> Meter | None:
        """The metrics of this worker; None if they are off."""

    @property
    def valves(self) -> Sequence[Valve]:
        """The valves of all consumers in this process; in a process of a pool, those of its parent."""

    @property
    def capture(self) -> Captures:
        """The capture for requests that no consumer's strategy has made."""


class Valve(Protocol):
    """The circuits, as the ends of runs see them."""

    def opens_with(self, task: Any, args: Any, kwargs: Any) -> bool:
        """Whether the circuit of a message with these arguments is open, or would open if the message failed
        with a transient failure."""

    def ended(self, request: Any, verdict: Verdict | None) -> None:
        """Note that a run of ``request`` failed with ``verdict``; None if the failure says nothing about the
        services that the task needs."""


class Deliveries(Protocol):
    """The count of deliveries that did not end, as requests use it."""

    def admit(self, suspect: Any) -> None:
        """Run ``suspect`` as soon as it may, or condemn it."""

    def count_death(
        self, suspect: Any, died: Delivery, then: Callable[[tuple[Delivery, ...]], object]
    ) -> None:
        """Store that ``suspect`` died; ``then`` gets the deliveries of its message that did not end."""

    def forget(self, known: Sequence[Delivery], then: Callable[[], object]) -> None:
        """Delete these runs from the count; call ``then`` once that is stored."""

    def give_slot_back(self) -> None:
        """Free the pool slot of a request that will not run now."""

    def is_spent(self, known: Sequence[Delivery], message: Any) -> bool:
        """Whether a message has had too many deliveries to be delivered again."""


class Copies(Protocol):
    """The check for copies of a message, as requests and batches use it."""

    def asks(self, request: Any, run: Callable[[Any], object]) -> bool:
        """Whether ``request`` may be one of several copies. If so, ``run`` may be called with it later."""

    def dropped(self, request: Any, why: str) -> None:
        """Report that ``request`` was dropped on purpose."""


class Captures(Protocol):
    """The capture of one consumer, as its requests use it."""

    app: Wiring

    @property
    def valve(self) -> Valve:
        """The circuits."""

    @property
    def copies(self) -> Copies:
        """The check for copies."""

    @property
    def deliveries(self) -> Deliveries:
        """The count of deliveries."""

    @property
    def flight_recorder(self) -> FlightRecorder:
        """Keeps the messages that were acknowledged before they ended."""

    def strategy_of(self, task: Any, consumer: Any) -> AbstractContextManager[None]:
        """Within this block, Celery makes the strategy of ``task`` for ``consumer``."""

    def write(
        self, what: DeadLetter | Outcome, then: Callable[[], object], *, urgent: bool = False
    ) -> None:
        """Make ``what`` durable, then call ``then``."""

    def write_now(self, what: DeadLetter | Outcome) -> None:
        """Make ``what`` durable before returning, also from a signal handler."""
