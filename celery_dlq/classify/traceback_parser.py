"""Parses the text of a traceback: its exceptions, and how they are linked."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

#: The most exceptions read from one text, and the most characters of one message.
_CHAIN_LIMIT, _MESSAGE_LIMIT = 64, 8_192

_CAUSE = "The above exception was the direct cause of the following exception:"
_CONTEXT = "During handling of the above exception, another exception occurred:"

_HEADER = "Traceback (most recent call last):"
_GROUP_HEADER = "Exception Group Traceback (most recent call last):"

#: ``package.module.Type: message``, the beginning of the last lines of a traceback.
_LAST_LINE = re.compile(r"([^\W\d]\w*(?:\.(?:[^\W\d]\w*|<locals>))*)(?:: (.*)|:)?\Z")

#: Begins the members of a group.
_NESTED = "+-+"

#: The prefix of the lines of a group's members, and the line between two of them.
_MEMBER_MARGIN = re.compile(r"\s*[|+] ?")
_MEMBER_RULE = re.compile(r"[\s|]*\+-[-+]*(?: (?:\d+|\.\.\.) -+)?\s*\Z")


@dataclass(frozen=True)
class Written:
    """An exception in a text."""

    #: Dotted, as written; builtins without their module.
    type_name: str
    message: str
    #: The exception before it in the text: its cause, or the exception that was being handled.
    before: Written | None = None
    #: Whether ``before`` is the cause.
    is_cause: bool = False
    #: The exceptions of a group.
    members: tuple[Written, ...] = ()


def parse(text: str) -> Written | None:
    """The exception that a traceback ends with; None if the text has none.

    The last traceback counts; text before and after it is ignored. A single line such as
    ``requests.exceptions.Timeout: too slow`` is enough.
    """
    lines = _unprefixed(text.splitlines())
    starts = [place for place, line in enumerate(lines) if _is_header(line)]
    if not starts:
        return _single(lines)
    return _chain(lines[_first_of_last(lines, starts) :])


def _unprefixed(lines: Iterable[str]) -> list[str]:
    """``lines`` without the prefix of a log before the first line of a traceback."""
    cut = []
    for line in lines:
        begin = max(0, line.find(_GROUP_HEADER if _GROUP_HEADER in line else _HEADER))
        cut.append(line if line[:1].isspace() else line[begin:])
    return cut


def _is_header(line: str) -> bool:
    return line.strip(" |+") in (_HEADER, _GROUP_HEADER)


def _first_of_last(lines: list[str], starts: list[int]) -> int:
    """The line on which the last chain begins: the last header outside of a group that does not follow a
    link."""
    outer = [place for place in starts if not lines[place].lstrip().startswith("|")]
    first = outer[-1] if outer else starts[-1]
    for earlier in reversed(outer[:-1]):
        if not any(line.strip(" |") in (_CAUSE, _CONTEXT) for line in lines[earlier:first]):
            break
        first = earlier
    return first


def _single(lines: Iterable[str]) -> Written | None:
    text = [line for line in lines if line.strip()]
    found = _LAST_LINE.match(text[0].strip()) if text else None
    # A single line without a traceback around it must have a name that looks like a type.
    if found is None or not (found[1].rpartition(".")[2][:1].isupper() or "." in found[1]):
        return None
    return Written(found[1], "\n".join([found[2] or "", *text[1:]])[:_MESSAGE_LIMIT].strip())


def _chain(lines: list[str]) -> Written | None:
    """The last exception of a chain, linked to those before it."""
    last: Written | None = None
    for block, is_cause in [*_blocks(lines)][-_CHAIN_LIMIT:]:
        found = _block(block)
        if found is not None:
            last = replace(found, before=last, is_cause=is_cause and last is not None)
    return last


def _blocks(lines: Iterable[str]) -> Iterator[tuple[list[str], bool]]:
    """The lines of each exception, and whether the exception before it is its cause."""
    block: list[str] = []
    is_cause = False
    for line in lines:
        # After a group's margin, it links two exceptions of a member.
        if line.strip() in (_CAUSE, _CONTEXT) and not line.lstrip().startswith("|"):
            yield block, is_cause
            block, is_cause = [], line.strip() == _CAUSE
        else:
            block.append(line)
    yield block, is_cause


def _block(lines: list[str]) -> Written | None:
    start = next((place for place, line in enumerate(lines) if _is_header(line)), -1)
    is_group = start >= 0 and lines[start].strip(" |+") == _GROUP_HEADER
    after = lines[start + 1 :]
    return _group(after) if is_group else _plain(after)


def _plain(lines: Iterable[str]) -> Written | None:
    """The exception below the frames, which are indented; its message may have more lines."""
    rest = iter(lines)
    for line in rest:
        found = None if line.startswith((" ", "\t")) else _LAST_LINE.match(line.rstrip())
        if found is not None:
            message = "\n".join([found[2] or "", *rest])[:_MESSAGE_LIMIT]
            return Written(found[1], message.strip())
    return None


def _group(lines: list[str]) -> Written | None:
    """A group and its members. A member that is a group itself is replaced by its own members, because
    all of them have to be transient anyway."""
    parts: list[list[str]] = [[]]
    for line in lines:
        if not _MEMBER_RULE.match(line):
            parts[-1].append(_MEMBER_MARGIN.sub("", line, 1))
        elif _NESTED in line and len(parts) > 1:
            parts[-1] = []
        else:
            parts.append([])
    head = _plain(parts[0])
    if head is None:
        return None
    inner = (_chain([_unmargined(line) for line in part]) for part in parts[1:])
    return replace(head, members=tuple(found for found in inner if found is not None))


def _unmargined(line: str) -> str:
    while line.lstrip().startswith("|"):
        line = _MEMBER_MARGIN.sub("", line, 1)
    return line
