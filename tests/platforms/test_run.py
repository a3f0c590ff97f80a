from dataclasses import replace

import pytest
from platforms import run
from platforms.debian import SuiteError
from platforms.pytest_run import NotRun, run_tests
from platforms.results import Result, saved

pytestmark = pytest.mark.nightly

GOOD = Result(
    kind="server", name="redis-8", version="8.0.6", what="real workers",
    passed=5, failed=0, skipped=0, seconds=1.0, date="2026-11-28",
)  # fmt: skip
BAD = replace(GOOD, name="mysql-9", failed=1)


def fails():
    raise SuiteError("Debian is away")
    yield


def interrupted():
    raise KeyboardInterrupt
    yield


@pytest.fixture
def results(tmp_path, monkeypatch):
    """Runs go there, and not into the checkout."""
    (tmp_path / "page.md").touch()
    monkeypatch.setattr(run, "PAGE", tmp_path / "page.md")
    monkeypatch.setattr(run, "save", lambda result: run_save(result, tmp_path))
    monkeypatch.setattr(run, "saved", lambda: saved(tmp_path))
    platforms = {
        "redis-8": lambda: iter([GOOD]), "mysql-9": lambda: iter([BAD]), "lost": fails,
        "interrupted": interrupted,
    }  # fmt: skip
    monkeypatch.setattr(run, "PLATFORMS", platforms)
    return tmp_path


run_save = run.save


@pytest.mark.parametrize(
    ("names", "status", "seen"),
    [
        (["redis-8"], 0, ["redis-8"]),
        (["mysql-9", "redis-8"], 1, ["mysql-9", "redis-8"]),
        (["lost", "redis-8"], 1, ["redis-8"]),
        (["redis-8", "interrupted", "mysql-9"], 1, ["redis-8"]),
    ],
)
def test_the_page_has_what_ran_and_the_status_says_whether_all_passed(results, names, status, seen):
    assert run.main(names) == status
    assert [result.name for result in saved(results)] == seen
    assert all(f"`{name}`" in (results / "page.md").read_text() for name in seen)


def test_an_unknown_name_runs_nothing(results, capsys):
    assert run.main(["redis-8", "mysql-5"]) == 2
    assert "Unknown: mysql-5. There are: redis-8," in capsys.readouterr().err
    assert [*saved(results)] == []


def test_tests_are_counted(tmp_path):
    (tmp_path / "test_it.py").write_text("def test_a(): pass\n\n\ndef test_b(): assert False\n")
    found = run_tests("server", "redis-8", "8.0", "two tests", [str(tmp_path / "test_it.py")], {})
    assert (found.passed, found.failed, found.skipped) == (1, 1, 0)


def test_tests_that_cannot_be_started_are_an_error(tmp_path):
    with pytest.raises(NotRun, match=r"redis-8: pytest ended with \d before it ran nothing"):
        run_tests("server", "redis-8", "8.0", "nothing", ["--no-such-option"], {})
