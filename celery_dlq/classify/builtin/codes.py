"""The codes and texts of ``codes.ini``, by ``section.name``."""

from __future__ import annotations

import re
from configparser import RawConfigParser
from pathlib import Path

_LISTS = RawConfigParser(delimiters=(":",), comment_prefixes=("#",), inline_comment_prefixes=("#",))
_LISTS.read_string(Path(__file__).with_name("codes.ini").read_text(encoding="utf-8"))


def words(*names: str) -> frozenset[str]:
    """The words of these lists."""
    return frozenset(" ".join(_LISTS.get(*name.split(".")) for name in names).split())


def numbers(*names: str) -> frozenset[int]:
    """The numbers of these lists."""
    return frozenset(map(int, words(*names)))


def texts(*names: str) -> re.Pattern[str]:
    """A pattern for one of these texts; each line of a list is a pattern."""
    lines = (line for name in names for line in _LISTS.get(*name.split(".")).splitlines())
    return re.compile("|".join(filter(None, lines)))


def phrases(name: str) -> tuple[str, ...]:
    """The phrases of a list, which are separated by commas."""
    return tuple(" ".join(phrase.split()) for phrase in _LISTS.get(*name.split(".")).split(","))
