from dataclasses import replace

import pytest
from platforms.results import Counts, Result, counts_of, save, saved

pytestmark = pytest.mark.nightly

MYSQL = Result(
    kind="server", name="mysql-9", version="9.7.4", what="the tests of the store",
    passed=10, failed=1, skipped=2, seconds=3.5, date="2026-11-28",
)  # fmt: skip

REPORT = """<testsuites>
<testsuite name="pytest" errors="1" failures="2" skipped="3" tests="10" time="4.25" />
</testsuites>"""


def test_a_saved_result_is_read_again(tmp_path):
    save(MYSQL, tmp_path / "results")
    assert [*saved(tmp_path / "results")] == [MYSQL]


def test_a_later_run_of_a_suite_replaces_the_earlier_one(tmp_path):
    later = replace(MYSQL, version="9.8.0", failed=0)
    other = replace(MYSQL, what="the matrix")
    for result in (MYSQL, other, later):
        save(result, tmp_path)
    assert {*saved(tmp_path)} == {later, other}


def test_errors_of_fixtures_count_as_failures(tmp_path):
    (tmp_path / "report.xml").write_text(REPORT)
    assert counts_of(tmp_path / "report.xml") == Counts(passed=4, failed=3, skipped=3, seconds=4.2)
