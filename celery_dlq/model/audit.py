"""The head of the audit's chain."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, kw_only=True)
class AuditHead:
    """The newest link of the audit's chain. As a text, it is ``N:HASH``."""

    #: The number of the link. The first one has 1; without links, it is 0.
    n: int
    #: 64 hexadecimal digits, which depend on all links before; empty without links.
    hash: str
    #: The act that was written last, its operator, and when it began. Empty if old acts were deleted.
    act: str = ""
    who: str = ""
    at: datetime | None = None

    def __str__(self) -> str:
        return f"{self.n}:{self.hash}"
