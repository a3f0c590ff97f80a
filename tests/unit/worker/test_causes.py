"""The recipe for groups, measured on failures whose causes are known. docs/reference/grouping.md has the
result."""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path

import pytest
from support.errors.causes import CASES, CITIES, NAMES, failures, sentry_group
from support.factories import letter

from celery_dlq.base.redact import Redactor, safe_message
from celery_dlq.classify import subject
from celery_dlq.worker.failure import type_name
from celery_dlq.worker.grouping import Grouping, grounds_of

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "grouping.md"
ROW = re.compile(r"^\| (.+?) \| (\d+) \| (\d+) \| (\d+) \| (\d+) \| ?(.*?) ?\|$", re.M)
#: Cases in which failures of different causes are in one group, with the reason.
MIXED = {name: why for name, *_, why in ROW.findall(PAGE.read_text()) if why.startswith("mixed")}

TABLE = {
    name: (int(causes), int(groups), int(sentry))
    for name, causes, groups, _before, sentry, _why in ROW.findall(PAGE.read_text())
}


def group_of(exc: BaseException) -> str:
    """The group of a failure of a task that was called with names and cities."""
    about = subject(exc)
    failed = letter(
        exception_type=type_name(type(about)),
        message=safe_message(about),
        args=[*NAMES, *CITIES, "Ivan", "Zoe"],
        grounds=grounds_of(exc),
    )
    return Grouping(Redactor()).grouped(failed).fingerprint


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_groups_of_known_causes(case):
    causes, sentry = defaultdict(set), set()
    for cause, exc in failures(case):
        causes[group_of(exc)].add(cause)
        sentry.add(sentry_group(exc))
    found = (case.causes, len(causes), len(sentry))
    assert found == TABLE[case.name], "correct the page"
    is_mixed = any(len(those) > 1 for those in causes.values())
    assert is_mixed == (case.name in MIXED)


def test_the_page_has_each_case():
    assert len(TABLE) >= 60
    assert {case.name for case in CASES} <= TABLE.keys()
