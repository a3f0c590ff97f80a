"""Automations as the store knows them: automatic redrives and handlers. Their states, and the letters that
they may take."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import Enum

from celery_dlq.model.operation import SendingState

#: The name under which all automations together are paused.
EVERY = "*"

#: The beginning of an automation's name where people's names are.
ACTOR = "auto:"


def actor_of(name: str) -> str:
    """The name of an automation in the audit, and as the author of its operations."""
    return f"{ACTOR}{name}"


def auto_of(who: str) -> str:
    """The inverse of :func:`actor_of`; empty for other authors."""
    return who.removeprefix(ACTOR) if who.startswith(ACTOR) else ""


class AutoMode(str, Enum):
    """Whether an automatic redrive sends."""

    ON = "on"
    #: The letters that it would send are recorded. Nothing is sent or changed.
    SHADOW = "shadow"


class AutoState(str, Enum):
    """The state of an automation. Only a person leaves the last two."""

    ACTIVE = "active"
    #: A person has stopped it.
    PAUSED = "paused"
    #: It has stopped itself, because its redrives fail.
    SUSPENDED = "suspended"


@dataclass(frozen=True, kw_only=True)
class AutoStatus:
    """The state of one automation, and who set it."""

    name: str
    state: AutoState = AutoState.ACTIVE
    #: When the state was set; None if it never was.
    at: datetime | None = None
    who: str = ""
    why: str = ""
    #: When it last looked for letters.
    looked_at: datetime | None = None


@dataclass(frozen=True, kw_only=True)
class AutoTry:
    """One automatic redrive of a letter."""

    at: datetime
    mode: AutoMode
    #: The fingerprint of the letter before it.
    fingerprint: str
    #: None if the letter was chosen and not sent.
    state: SendingState | None
    #: Whether its operation has ended.
    is_over: bool

    @property
    def counts(self) -> bool:
        """Whether it counts for the limit of the letter: its message was, or may have been, sent, or a check
        has refused it."""
        return self.mode is AutoMode.ON and self.state is not None


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """A dead letter that an automation may take."""

    #: Its number in the store.
    number: int
    task_id: str
    task: str
    fingerprint: str
    release: str
    failed_at: datetime
    redrive_count: int
    #: Its automatic redrives, the oldest first; empty for a handler.
    tries: tuple[AutoTry, ...] = ()


@dataclass(frozen=True, kw_only=True)
class HeldLetter:
    """A letter that no automatic redrive touches again."""

    task_id: str
    #: The automatic redrive that held it.
    name: str
    why: str
    at: datetime


@dataclass(frozen=True, kw_only=True)
class AutoSends:
    """How many letters an automatic redrive has chosen lately, without those that were not sent."""

    #: By this automatic redrive, within a day.
    day: int
    #: By all together, within an hour.
    hour_of_all: int
