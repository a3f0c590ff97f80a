"""The screen of ``dlq stats``."""

from __future__ import annotations

from collections.abc import Mapping

from celery_dlq.cli.screens.render import Column, Facts, Part, Table
from celery_dlq.store.base import Stats
from celery_dlq.view.text import bar, counted, sparkline
from celery_dlq.view.times import age_names

_BAR_WIDTH = 30

#: Rows of a table of counts on a terminal; the others are added up in one row.
_TOP = 15


def glance(found: Stats, *, drawn: bool) -> Facts:
    """Depth, oldest letter, states and arrivals."""
    arrivals = sparkline(found.arrivals) if drawn else " ".join(map(str, found.arrivals))
    return Facts(
        "At a glance",
        [
            ("Depth", counted(found.depth, "open letter")),
            ("Oldest", found.oldest_open_at),
            (
                "States",
                ", ".join(f"{n:,} {state.value}" for state, n in found.by_state.items() if n),
            ),
            ("Arrivals/h", arrivals),
            (
                "Last 24 h",
                f"{sum(found.arrivals):,}, {found.arrivals[-1]:,} of them in the last hour",
            ),
        ],
    )


def stats_parts(found: Stats, *, drawn: bool) -> list[Part]:
    """The parts of the screen.

    :param drawn: whether bars may be drawn.
    """
    by_reason = {reason.value: count for reason, count in found.by_reason.items()}
    tables = [
        _count_table("TASK", found.by_task, drawn=drawn),
        _count_table("EXCEPTION", found.by_exception, drawn=drawn),
        _count_table("REASON", by_reason, drawn=drawn),
        _count_table("AGE", age_names(found.ages), drawn=drawn),
    ]
    return [glance(found, drawn=drawn), *(table for table in tables if table.rows and found.depth)]


def _count_table(title: str, counts: Mapping[str, int], *, drawn: bool) -> Table:
    columns = [Column(title), Column("OPEN", right=True, rigid=True)]
    if not drawn:
        return Table(columns, [*counts.items()])
    top = max(counts.values(), default=0)
    rows = [(name, count, bar(count, top, _BAR_WIDTH)) for name, count in counts.items()]
    if len(rows) > _TOP:
        rest = sum(count for _name, count, _bar in rows[_TOP:])
        rows[_TOP:] = [(f"… {len(rows) - _TOP} more", rest, "")]
    return Table([*columns, Column("")], rows)
