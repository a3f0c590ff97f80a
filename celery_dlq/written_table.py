"""Tables as a store keeps them, read when somebody asks for what is in them. A redrive sends most headers on
as they are written, and only puts another beginning before them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from celery_dlq.codec import decode_plain, decode_table, encode_table, is_tagged

#: The headers that are written first: those that a redrive has to know, or writes anew.
OPENING = ("task", "id", "retries", "eta", "expires")

#: What other headers begin with that are not sent as they are: ours, the broker's, and of a compression that
#: is undone.
_OTHERS = ("x-", "redelivered", "compression")

# The blank says that all the rest is sent as it is; encode_table() writes none.
_TEXT, _MAYBE = r'"([^"\\]*)"', r'(?:null|"[^"\\]*")'
_OPENING = re.compile(
    rf'\{{ "task":{_TEXT},"id":{_TEXT},"retries":\d+,"eta":{_MAYBE},"expires":{_MAYBE}'
)


class WrittenTable(Mapping[str, Any]):
    """The table that :func:`~celery_dlq.codec.encode_table` has written as ``text``."""

    __slots__ = ("_read", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        self._read: dict[str, Any] | None = None

    @property
    def table(self) -> dict[str, Any]:
        """All that is in it."""
        if self._read is None:
            self._read = self._decoded()
        return self._read

    def _decoded(self) -> dict[str, Any]:
        return decode_table(self.text)

    def __getitem__(self, name: str) -> Any:
        return self.table[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.table)

    def __len__(self) -> int:
        return len(self.table)

    def __repr__(self) -> str:
        return repr(self.table)

    def __reduce__(self) -> tuple[type[WrittenTable], tuple[str]]:
        return type(self), (self.text,)


class WrittenHeaders(WrittenTable):
    """The headers that :func:`write_headers` has written as ``text``. Of nearly all messages, what a redrive
    asks for is known without reading them."""

    __slots__ = ("opening",)

    def __init__(self, text: str) -> None:
        super().__init__(text)
        #: The beginning of the text up to the last of :data:`OPENING`, where a redrive may send all that
        #: follows as it is; its groups are the task and the id. Else None.
        self.opening = _OPENING.match(text)

    def __getitem__(self, name: str) -> Any:
        if name == "task" and self.opening is not None:
            return self.opening[1]
        return super().__getitem__(name)

    def _decoded(self) -> dict[str, Any]:
        if self.opening is None:
            return super()._decoded()
        table: dict[str, Any] = decode_plain(self.text)
        return table

    def __contains__(self, name: object) -> bool:
        if self.opening is not None and isinstance(name, str) and name.startswith(_OTHERS):
            return False
        return name in self.table


def as_dict(table: Mapping[str, Any]) -> dict[str, Any]:
    """A copy of ``table``; of a written one in a small part of the time that dict() takes."""
    return table.table.copy() if isinstance(table, WrittenTable) else dict(table)


def write_headers(headers: Mapping[Any, Any]) -> str:
    """``headers`` as text that :func:`~celery_dlq.codec.decode_table` reads, those of :data:`OPENING`
    first."""
    first = {name: headers[name] for name in OPENING if name in headers}
    text = encode_table({**first, **headers})
    marked = text.replace("{", "{ ", 1)
    return marked if _is_sent_as_it_is(headers, marked) else text


def _is_sent_as_it_is(headers: Mapping[Any, Any], text: str) -> bool:
    is_known = _OPENING.match(text) is not None and not is_tagged(text)
    return is_known and not any(name.startswith(_OTHERS) for name in headers)
