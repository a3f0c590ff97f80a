"""A request whose end its breaker hears of."""

from __future__ import annotations

from typing import Any, NamedTuple

from billiard.einfo import ExceptionInfo
from celery.exceptions import TimeLimitExceeded
from celery.utils.log import get_logger
from celery.worker.request import Request

from celery_dlq.letter import Failure
from celery_dlq.states import Verdict
from celery_dlq.worker.body.failure import unwrap

logger = get_logger(__name__)


class Probe(NamedTuple):
    """The one message of an open circuit that runs."""

    #: Task and key of the circuit.
    name: tuple[str, str]
    token: str


class WatchedRequest(Request):  # type: ignore[misc]
    """A request that tells :class:`~celery_dlq.worker.admission.breaker.Breaker` of its failure, once. A
    success costs nothing."""

    #: Set while it runs as a probe.
    dlq_probe: Probe | None = None
    _dlq_told = False

    def on_failure(
        self, exc_info: ExceptionInfo, send_failed_event: bool = True, return_ok: bool = False
    ) -> None:
        """Called for every run that did not succeed, retried ones too."""
        self._tell_breaker(exc_info, unwrap(exc_info))
        super().on_failure(exc_info, send_failed_event=send_failed_event, return_ok=return_ok)

    def on_timeout(self, soft: bool, timeout: float) -> None:
        """Called by the pool when a time limit is over; after ``on_failure`` on prefork."""
        if not soft:
            self._tell_breaker(None, TimeLimitExceeded(timeout))
        super().on_timeout(soft, timeout)

    def _tell_breaker(self, einfo: Any, exc: BaseException) -> None:
        if not self._dlq_told and not str(self.type).startswith("celery."):
            self._dlq_told = True
            try:
                self.task.dlq.breaker.ended(self, self._verdict_on(einfo, exc))
            except Exception:
                # What follows records the failure, and acknowledges the message.
                logger.exception(
                    "the breaker did not hear of the end of %s[%s]", self.name, self.id
                )

    def _verdict_on(self, einfo: Any, exc: BaseException) -> Verdict | None:
        """What the failure says about what the task needs; None for nothing."""
        noted: Failure | None = getattr(einfo, "dlq_failure", None)
        if noted is not None:
            return noted.explanation.verdict
        if getattr(einfo, "dlq_for_error", False):
            return Verdict.TRANSIENT
        if isinstance(exc, TimeLimitExceeded):
            verdict: Verdict = self.task.dlq.classifier.decide(exc).verdict
            return verdict
        return None
