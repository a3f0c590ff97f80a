"""Charts as inline SVG, drawn by the server: they load nothing and need no script.

A chart has shapes only. Its text is HTML beside it, which keeps its size on a phone while the shapes stretch
to the width of their card. The style sheet sets the colours, for both themes. A shape that stands for a time
has the time in attributes, so that a script can write its tooltip in local time.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from html import escape
from itertools import pairwise

from celery_dlq.flower.words import span
from celery_dlq.model.operation import Counts
from celery_dlq.view.text import counted, visible

#: The height of a chart and the length of a bar, in SVG units.
HEIGHT, LENGTH = 100.0, 1000.0

#: The width of a column with its gap, and the gap.
_STEP, _GAP = 10.0, 2.0

#: The smallest share that is drawn for a count above zero.
_LEAST = 0.02

#: The ends of scales below ten. The half of each, also times a power of ten, is a round number.
_ROUND = (2, 4, 6, 8, 10)


@dataclass(frozen=True)
class Bin:
    """One column: its time, without the end, and its count."""

    since: datetime
    until: datetime
    count: int

    @property
    def label(self) -> str:
        """Its time."""
        return span(self.since, self.until)


def bins_of(edges: Sequence[datetime], counts: Sequence[int]) -> list[Bin]:
    """The columns between ``edges``."""
    return [Bin(*span, count) for span, count in zip(pairwise(edges), counts, strict=True)]


@dataclass(frozen=True)
class Part:
    """One part of a stacked bar.

    :param kind: the end of its CSS class, ``dlq-part-<kind>``; never user input.
    """

    label: str
    count: int
    kind: str


def columns(bins: Sequence[Bin], label: str, *, most: int = 0) -> str:
    """Columns from left to right on the scale of :func:`scale`, with lines at its middle and its end.

    :param most: the highest count of other charts that have the same scale.
    """
    top = scale(max(most, highest(bins)))[1]
    width = max(1, len(bins)) * _STEP - _GAP
    shapes = [
        *(_rule(width, height) for height in (0.0, HEIGHT / 2)),
        *(_column(place, item, top) for place, item in enumerate(bins)),
    ]
    return _svg("columns", width, HEIGHT, _summed(label, bins), shapes)


def scale(most: int) -> tuple[int, int]:
    """The middle and the end of a scale for counts of at most ``most``; both are round numbers."""
    power = 1
    while _ROUND[-1] * power < most:
        power *= 10
    end = next(number * power for number in _ROUND if number * power >= most)
    return end // 2, end


def sparkline(counts: Sequence[int], label: str) -> str:
    """Columns without labels, for a row of a table."""
    top = max(counts, default=0)
    shapes = [_filled(place, count, top) for place, count in enumerate(counts) if count]
    return _svg("spark", max(1, len(counts)) * _STEP - _GAP, HEIGHT, label, shapes)


def bar(count: int, top: int, label: str) -> str:
    """One horizontal bar, as long as the chart if ``count`` is ``top``."""
    length = LENGTH * _share(count, top)
    shape = f'<rect class="dlq-fill" width="{_number(length)}" height="10"></rect>'
    return _svg("bar", LENGTH, 10.0, label, [shape] if count else [])


def progress(counts: Counts) -> list[Part]:
    """The letters of an operation by state, the ones with an outcome first, for :func:`stack`."""
    return [
        Part("succeeded", counts.succeeded, "succeeded"),
        Part("failed again", counts.failed, "failed"),
        Part("without an outcome", counts.unknown, "unknown"),
        Part("awaited", counts.sent, "sent"),
        Part("skipped", counts.skipped, "skipped"),
        Part("left", counts.left, "left"),
    ]


def stack(parts: Sequence[Part], label: str) -> str:
    """A bar of ``parts``; together they fill its length."""
    whole = sum(part.count for part in parts)
    lengths = _lengths([part.count for part in parts])
    shapes, start = [], 0.0
    for part, length in zip(parts, lengths, strict=True):
        if part.count:
            shapes.append(_piece(part, start, length))
        start += length
    shown = [f"{part.label} {part.count:,}" for part in parts if part.count]
    return _svg("stack", LENGTH, 10.0, f"{label}: {', '.join(shown) or whole}", shapes)


def _column(place: int, item: Bin, top: int) -> str:
    said = counted(item.count, "letter")
    # The full height reacts to the pointer, so that an empty column has a tooltip, too.
    size = f'x="{_number(place * _STEP)}" width="{_number(_STEP)}" height="{_number(HEIGHT)}"'
    sense = f'<rect class="dlq-sense" {size}></rect>'
    shape = _filled(place, item.count, top) if item.count else ""
    return (
        f'<g class="dlq-column" data-since="{item.since.isoformat()}" data-until="{item.until.isoformat()}" '
        f'data-said="{said}"><title>{_text(item.label)}: {said}</title>{sense}{shape}</g>'
    )


def _filled(place: int, count: int, top: int) -> str:
    height = HEIGHT * _share(count, top)
    return (
        f'<rect class="dlq-fill" x="{_number(place * _STEP)}" y="{_number(HEIGHT - height)}" '
        f'width="{_number(_STEP - _GAP)}" height="{_number(height)}"></rect>'
    )


def _rule(width: float, height: float) -> str:
    return (
        f'<path class="dlq-rule" d="M0 {_number(height)}H{_number(width)}" '
        'vector-effect="non-scaling-stroke"></path>'
    )


def _piece(part: Part, start: float, length: float) -> str:
    return (
        f'<rect class="dlq-part-{part.kind}" x="{_number(start)}" width="{_number(length)}" height="10">'
        f"<title>{_text(part.label)}: {part.count:,}</title></rect>"
    )


def _share(count: int, top: int) -> float:
    return max(_LEAST, count / top) if count > 0 else 0.0


def _lengths(counts: Sequence[int]) -> list[float]:
    """Lengths that fill the bar; small ones stay visible at the cost of large ones."""
    whole = sum(counts)
    shares = [_share(count, whole) for count in counts]
    return [LENGTH * share / (sum(shares) or 1.0) for share in shares]


def _svg(kind: str, width: float, height: float, label: str, shapes: Sequence[str]) -> str:
    return (
        f'<svg class="dlq-chart dlq-chart-{kind}" viewBox="0 0 {_number(width)} {_number(height)}" '
        f'preserveAspectRatio="none" role="img" aria-label="{_text(label)}" focusable="false">'
        f"{''.join(shapes)}</svg>"
    )


def _summed(label: str, bins: Sequence[Bin]) -> str:
    total = sum(item.count for item in bins)
    if not total:
        return f"{label}: none"
    most = max(bins, key=lambda item: item.count)
    return f"{label}: {total:,} in total, at most {most.count:,} ({most.label})"


def highest(bins: Iterable[Bin]) -> int:
    """The highest count of ``bins``; 0 without any."""
    return max((item.count for item in bins), default=0)


def _number(value: float) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".")


def _text(text: str) -> str:
    return escape(visible(text))
