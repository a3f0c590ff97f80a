"""The values of a regrouping: stored letters with the fingerprints of today's recipe."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from celery_dlq.model.letter import DeadLetter


@dataclass(frozen=True, kw_only=True)
class Waiting:
    """A group whose letters may belong to other groups."""

    fingerprint: str
    task: str
    exception_type: str
    #: The recipe that has to be applied; empty if only aliases have changed.
    recipe: str
    #: The number of the last letter that was looked at; below zero before the first.
    above: int
    #: The letters that it has.
    letters: int


@dataclass(frozen=True, kw_only=True)
class Judged:
    """A stored letter, and its fingerprint by today's recipe."""

    id: int
    #: As it is stored.
    letter: DeadLetter
    #: With its new fingerprint, and what the recipe noted.
    after: DeadLetter

    @property
    def raw(self) -> str:
        """The new fingerprint."""
        return self.after.fingerprint


def place_name(place: str) -> str:
    """The name of a place among the names of aliases."""
    return f"@{place}" if place else ""


def home(known: Mapping[str, str], raw: str, place: str) -> str:
    """The group of a failure.

    :param known: the groups that the aliases give to its fingerprint and its place; empty for a place that
        must not be folded.
    """
    return known.get(raw) or known.get(place_name(place)) or raw


def heir_of(group: str, raws: Counter[str], known: Mapping[str, str]) -> str | None:
    """The fingerprint whose letters a group is to keep, so that its history stays; None if it keeps its own.

    :param raws: the new fingerprints of its letters, with the number of each.
    :param known: the groups of those fingerprints that have one already.
    """
    if group in raws:
        return None
    return next((raw for raw, _number in raws.most_common() if raw not in known), None)
