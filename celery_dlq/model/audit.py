"""The chain of the audit: its head, and what a check of it has found."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime

from celery_dlq.errors import FilterError


@dataclass(frozen=True, kw_only=True)
class AuditHead:
    """The newest link of the audit's chain. As a text, it is ``N:HASH``, which :meth:`parse` reads."""

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

    @classmethod
    def parse(cls, text: str) -> AuditHead:
        """The head that was kept as ``text``.

        :raises FilterError: it is not ``N:HASH``.
        """
        found = re.fullmatch(r"([1-9][0-9]{0,17}):([0-9a-f]{64})", text.strip().lower())
        if found is None:
            raise FilterError(
                f"{text[:100]!r} is not a head of the audit; give N:HASH, as printed by: "
                "celery -A <app> dlq audit verify"
            )
        return cls(n=int(found[1]), hash=found[2])


@dataclass(frozen=True, kw_only=True)
class Break:
    """A place where the audit and its chain do not fit together."""

    #: ``changed``, ``deleted``, ``inserted``, ``reordered`` or ``rewritten``.
    what: str
    #: The id of the act; None if it is about a link alone.
    act: int | None = None
    #: The number of the link; None if no link is about the act.
    link: int | None = None
    #: What differs, for people.
    text: str


@dataclass(frozen=True, kw_only=True)
class VerifiedAudit:
    """The result of a check of the audit."""

    #: Acts and links that were checked, and how many of the links were made with the store's key.
    acts: int
    links: int
    keyed: int
    head: AuditHead
    breaks: tuple[Break, ...]
