"""The facts about a request, an act that waits for a second person."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from celery_dlq.model.request import Request, RequestState
from celery_dlq.view.fields import Field, as_record, record_of
from celery_dlq.view.operations import named_values
from celery_dlq.view.text import counted

#: All facts about a request; its letters are shown by themselves.
REQUEST: Sequence[Field] = (
    Field("id", "Id"),
    Field("act", "Act"),
    Field("state", "State"),
    Field("count", "Letters"),
    Field("who", "By", said=lambda one: one.who if one.proven else f"{one.who}, as no login has proved"),
    Field("proven"),
    Field("host", "On"),
    Field("why", "Why"),
    Field("at", "Asked"),
    Field("expires_at", "Expires", said=lambda one: one.expires_at if _waits(one) else ""),
    Field("needed", "Needs", said=lambda one: _needs(one) if _waits(one) else ""),
    # The change of a message has many lines, so it is shown by itself.
    Field("shown", "Changes", said=lambda one: "" if "change" in one.shown else named_values(one.shown)),
    Field("answers", "Answers", said=lambda one: "; ".join(map(_answer, one.answers))),
    Field("result", "Result", said=lambda one: named_values(
        {**one.result, "left_out": len(one.result.get("left_out", ()))} if one.result else {}
    )),
)  # fmt: skip


def request_record(one: Request, *, is_whole: bool = False) -> dict[str, Any]:
    """A request as plain data.

    :param is_whole: whether it has the letters.
    """
    letters = {"letters": sorted(one.letters)} if is_whole else {}
    return {**record_of(REQUEST, one, answers=[*map(as_record, one.answers)]), **letters}


def _waits(one: Request) -> bool:
    return one.state is RequestState.OPEN


def _needs(one: Request) -> str:
    return f"{counted(one.needed, 'other login')}, in Flower"


def _answer(one: Any) -> str:
    verb = "approved" if one.approves else "refused"
    return f"{verb} by {one.who}{f': {one.why}' * bool(one.why)}"
