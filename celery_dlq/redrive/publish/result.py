"""The result of publishing a batch of messages."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Sent:
    """The fates of the messages of a published batch, by task id."""

    confirmed: list[str] = field(default_factory=list)
    #: Refused by the broker, with its reason.
    refused: dict[str, str] = field(default_factory=dict)
    #: Those of them that a failing broker may have kept nevertheless.
    nacked: set[str] = field(default_factory=set)
    #: Never handed to the broker, because the connection was lost first.
    unsent: list[str] = field(default_factory=list)
    #: Handed over, but the broker did not answer.
    uncertain: list[str] = field(default_factory=list)
    error: str | None = None

    def refuse(self, task_id: str, error: Exception) -> None:
        """Note that the message of ``task_id`` cannot be encoded."""
        self.refused[task_id] = f"it cannot be encoded: {reason(error)}"


def reason(error: Exception) -> str:
    """``error`` in one line."""
    return f"{type(error).__name__}: {error}".strip().splitlines()[0]
