"""The error text for an unknown name."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import SequenceMatcher

#: The most names that are listed; the others are counted.
_LISTED = 40

#: The most names that ``did you mean`` offers; how similar they must be, from 0 to 1; and how much less
#: similar than the nearest one they may be.
_OFFERED, _ALIKE, _CLOSE = 3, 0.65, 0.1


def unknown_name(what: str, given: str, known: Iterable[str]) -> str:
    """A sentence that says that ``given`` is not ``what`` (such as ``a state``), which of the ``known``
    names it may stand for, and which names exist.

    Names are compared whole and by their last parts: ``chagre`` is near to ``shop.charge``.
    """
    names = list(dict.fromkeys(known))
    near = " or ".join(map(repr, near_names(given, names)))
    offer = f" did you mean {near}?" if near else ""
    return f"{given[:80]!r} is not {what};{offer} {_listed(names)}".strip()


def near_names(given: str, known: Iterable[str], *, alike: float = _ALIKE) -> list[str]:
    """The known names that are most similar, the nearest first.

    :param alike: how similar they must be, from 0 to 1.
    """
    scores = {name: _likeness(given.casefold(), name.casefold()) for name in known}
    least = max(alike, max(scores.values(), default=0.0) - _CLOSE)
    near = sorted(scores, key=lambda name: -scores[name])[:_OFFERED]
    return [name for name in near if scores[name] >= least]


def _likeness(given: str, name: str) -> float:
    """From 0 to 1. The last parts are compared separately, because tasks of one module begin alike."""
    lasts = given.rpartition(".")[2], name.rpartition(".")[2]
    return max(SequenceMatcher(None, *pair).ratio() for pair in ((given, name), lasts))


def _listed(names: list[str]) -> str:
    if not names:
        return "none exists."
    more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    return f"there {'is' if len(names) == 1 else 'are'} {', '.join(names[:_LISTED])}{more}."
