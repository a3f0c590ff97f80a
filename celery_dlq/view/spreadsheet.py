"""Records as CSV that is safe to open in a spreadsheet."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping
from typing import Any

from celery_dlq.codec import dump_json
from celery_dlq.view.text import visible

#: The characters that a formula begins with, and their full-width forms.
_OF_FORMULAS = ("=", "+", "-", "@", "\uff1d", "\uff0b", "\uff0d", "\uff20")


def csv_lines(rows: Iterable[Mapping[str, Any]], *, titled: bool = True) -> list[str]:
    """The lines of ``rows``, which have the same names.

    :param titled: whether the first line has the names.
    """
    paper = io.StringIO()
    writer = csv.writer(paper, lineterminator="\n")
    for row in rows:
        if titled:
            writer.writerow(row)
            titled = False
        writer.writerow(_cell(value) for value in row.values())
    return paper.getvalue().splitlines()


def _cell(value: Any) -> Any:
    if value is None or isinstance(value, (int, float)):
        return value
    text = visible(value) if isinstance(value, str) else dump_json(value)
    # A spreadsheet would evaluate a text that starts like a formula, blanks or not (OWASP: CSV injection).
    return "'" + text if text.lstrip().startswith(_OF_FORMULAS) else text
