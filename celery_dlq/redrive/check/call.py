"""The arguments with which a task can be called."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any


class Call:
    """A call of a task.

    :param task: as the app has registered it.
    """

    def __init__(self, task: Any) -> None:
        #: The signature of run(), not of the function that it wraps: a bound task gets itself from Celery.
        #: None if it is unknown.
        self.signature: inspect.Signature | None
        try:
            self.signature = inspect.signature(task.run)
        except (TypeError, ValueError):  # it is written in C
            self.signature = None
        if not getattr(task, "typing", True) and hasattr(task, "flush_every"):
            # celery-batches gives run() a list of messages instead of the arguments of one.
            self.signature = None
        # Celery's own check is faster. Task classes have none, and for a decorated function it accepts
        # anything.
        check = getattr(task, "__header__", None)
        is_same = check is not None and _shape(inspect.signature(check)) == _shape(self.signature)
        self._check = check if is_same else None

    def bind(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        """Check that the task can be called with these arguments.

        :raises TypeError: it cannot.
        """
        if self._check is not None:
            try:
                self._check(*args, **kwargs)
            except TypeError:
                pass  # the signature below gives the better error
            else:
                return
        if self.signature is not None:
            self.signature.bind(*args, **kwargs)


def _shape(signature: inspect.Signature | None) -> list[tuple[str, object, bool]] | None:
    if signature is None:
        return None
    parameters = signature.parameters.values()
    return [(one.name, one.kind, one.default is one.empty) for one in parameters]
