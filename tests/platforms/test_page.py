from dataclasses import replace

import pytest
from platforms.page import page
from platforms.results import Result

pytestmark = pytest.mark.nightly

MYSQL = Result(
    kind="server", name="mysql-9", version="9.7.4", what="the store",
    passed=1234, failed=1, skipped=2, seconds=3.5, date="2026-11-28",
)  # fmt: skip
PYTHON = replace(MYSQL, kind="python", name="python-3.9", version="3.9.1", what="unit tests")


def rows(text):
    return [line for line in text.splitlines() if line.startswith("| `")]


def test_a_row_says_what_was_run_on_which_version_and_when():
    row = "| `mysql-9` | 9.7.4 | the store | 1,234 | 1 | 2 | 2026-11-28 |"
    assert rows(page("", [MYSQL])) == [row]


def test_each_kind_has_a_table_and_versions_are_in_order():
    newer = replace(PYTHON, name="python-3.10", version="3.10.1")
    text = page("", [MYSQL, newer, PYTHON])
    headings = [line for line in text.splitlines() if line.startswith("## ")]
    assert headings == ["## Servers", "## Pythons and libraries"]
    assert [row.split()[1] for row in rows(text)] == ["`mysql-9`", "`python-3.9`", "`python-3.10`"]


def test_a_run_of_one_platform_leaves_the_rows_of_the_others():
    before = page("", [MYSQL, PYTHON])
    after = page(before, [replace(MYSQL, version="9.8.0")])
    assert rows(after) == [rows(before)[0].replace("9.7.4", "9.8.0"), rows(before)[1]]
    assert page(after, []) == after
