"""Functions of the user that change messages: repairs, which a redrive names, and upgrades, which bring the
arguments of a task to those of a release. Each app has its own."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from celery_dlq.base.bounded import TakesTooLong, bounded
from celery_dlq.base.known import unknown_name
from celery_dlq.base.redact import safe_message
from celery_dlq.errors import FunctionHangs, RepairError
from celery_dlq.redrive.letter.contents import Contents

#: Gets copies of args, kwargs and headers, and returns new ones, or None to leave the letter out.
RepairFunction = Callable[[list[Any], dict[str, Any], dict[str, Any]], Any]

#: Seconds that a call may take, and how many calls of a redrive may take longer before it ends. Together they
#: must be shorter than the lease of a claim, and one must be shorter than the time in which Flower answers.
TIMEOUT_S, MOST_HUNG = 5.0, 3

_PARTS = ("args", "kwargs", "headers")

_RELEASE = re.compile(r"(\D*)(\d+(?:[._-]\d+)*)")


@dataclass(frozen=True, kw_only=True)
class Upgrade:
    """A function that changes the messages of letters of earlier releases."""

    #: The dotted name of the task.
    task: str
    #: The release whose arguments it returns.
    to: str
    function: RepairFunction

    @property
    def named(self) -> str:
        """What it is, for people."""
        return f"the upgrade of {self.task} to {self.to}"

    def is_for(self, release: str) -> bool:
        """Whether ``release`` is known to be earlier than its own."""
        before, own = numbers_of(release), numbers_of(self.to)
        if before is None or own is None or before[0] != own[0]:
            return False
        return before[1] < own[1]


def numbers_of(release: str) -> tuple[str, tuple[int, ...]] | None:
    """The text before the numbers of a release, and its numbers without zeros at their end: ``("v", (1, 4))``
    of ``v1.4.0``. None if it has another form, such as the hash of a commit: then its place is unknown."""
    found = _RELEASE.fullmatch(release)
    if found is None:
        return None
    numbers = [int(part) for part in re.split(r"[._-]", found[2])]
    while numbers and not numbers[-1]:
        numbers.pop()
    return found[1], tuple(numbers)


@dataclass
class Functions:
    """The functions of an app that change messages."""

    #: By name, in the order of registration.
    repairs: dict[str, RepairFunction] = field(default_factory=dict)
    #: By task, the earliest release first.
    upgrades: dict[str, list[Upgrade]] = field(default_factory=dict)

    def repair_named(self, name: str) -> RepairFunction:
        """The repair with this name.

        :raises RepairError: the app has none.
        """
        if name not in self.repairs:
            raise RepairError(
                f"{unknown_name('a repair of this app', name, self.repairs)} Correct the name, or deploy and "
                "import the module that registers it (@dlq.repair) where this runs"
            )
        return self.repairs[name]

    def add_upgrade(self, new: Upgrade) -> None:
        """Add an upgrade in its place. It replaces that of the same task and release."""
        others = [one for one in self.upgrades.get(new.task, ()) if one.to != new.to]
        self.upgrades[new.task] = sorted(
            [*others, new], key=lambda one: (numbers_of(one.to) or ("", ()))[::-1]
        )


def functions_of(app: Any) -> Functions:
    """The functions of ``app``."""
    found: Functions = app.__dict__.setdefault("dlq_functions", Functions())
    return found


class Calls:
    """Calls functions in threads of their own, because a thread that hangs cannot be stopped: the redrive
    continues without it."""

    def __init__(self, app: Any) -> None:
        self._app, self._hung = app, list[str]()

    def changed(self, function: RepairFunction, named: str, contents: Contents) -> Contents:
        """The contents that ``function`` returns.

        :param named: what it is, for people.
        :raises RepairError: it leaves the letter out, raised, hangs, or returned something else.
        :raises FunctionHangs: too many calls have hung.
        """
        if len(self._hung) >= MOST_HUNG:
            raise FunctionHangs(
                f"{len(self._hung)} calls did not end within {TIMEOUT_S:g} seconds, the last one of "
                f"{self._hung[-1]}; correct it, restart this process, and resume the redrive"
            )

        def call() -> Any:
            # Celery's current app is one of each thread.
            self._app.set_current()
            return function(*(contents[part] for part in _PARTS))

        try:
            returned = bounded(call, TIMEOUT_S, thread_name="dlq-repair")
        except TakesTooLong:
            self._hung.append(named)
            raise RepairError(f"{named} did not end within {TIMEOUT_S:g} seconds") from None
        except (Exception, SystemExit) as error:
            raised = f"{named} raised {type(error).__name__}: {safe_message(error)}"
            raise RepairError(raised) from error
        if returned is None:
            raise RepairError(f"{named} left it out")
        if not isinstance(returned, (tuple, list)) or len(returned) != len(_PARTS):
            raise RepairError(
                f"{named} must return args, kwargs and headers, or None to leave it out"
            )
        return dict(zip(_PARTS, returned, strict=True))
