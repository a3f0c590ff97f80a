"""The pytest plugin: what a test of a user says about dead letters, and what it leaves behind."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from celery import Celery, current_app
from celery.exceptions import Reject

from celery_dlq import DeadLetterQueue, DLQTask, Filter, Leave, Route, Rule
from celery_dlq.errors import SettingsError
from celery_dlq.testing import DeadLetters, in_a_thread

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.slow

ELSEWHERE = {
    "broker_url": "redis://127.0.0.1:1/0",
    "result_backend": "redis://127.0.0.1:1/1",
    "task_always_eager": True,
    "task_routes": {"shop.mail": {"queue": "mails"}},
    "dlq_store_url": "postgresql+psycopg://user:password@127.0.0.1:1/shop",
    "dlq_rules": [Rule(LookupError, "transient", name="shop.lookup")],
}


@pytest.fixture
def called() -> list[object]:
    """What was given to hooks and handlers."""
    return []


@pytest.fixture
def app(called: list[object]) -> Iterator[Celery]:
    """An app whose broker, results and store do not answer."""
    app = Celery("shop", set_as_current=False)
    app.conf.update(ELSEWHERE)
    app.conf.dlq_hooks = {"new_group": [called.append]}
    app.conf.dlq_routes = [Route("money", task="charge", owner="bob", hooks=[called.append])]
    queue = DeadLetterQueue.of(app)
    queue.on_dead_letter(called.append)

    @queue.handler(all=True)
    def handle(letter):
        called.append(letter)
        return Leave()

    @app.task(name="shop.charge", base=DLQTask, shared=False)
    def charge(amount):
        return int(amount)

    @app.task(name="shop.mail", base=DLQTask, bind=True, shared=False)
    def mail(self):
        if self.request.retries < 2:
            raise self.retry(countdown=86_400 * 30)

    @app.task(name="shop.reject", base=DLQTask, shared=False)
    def reject():
        raise Reject("no", requeue=False)

    @app.task(name="shop.plain", shared=False)
    def plain():
        raise ValueError

    yield app
    app.close()


@pytest.fixture
def dlq(app: Celery, tmp_path: Path) -> Iterator[DeadLetters]:
    with in_a_thread(app, tmp_path / "dlq") as letters:
        yield letters


def test_a_message_dies_in_a_test(app: Celery, dlq: DeadLetters) -> None:
    app.tasks["shop.charge"].delay("1.50")
    letter = dlq.assert_dead("charge", reason="terminal", exception=ValueError)
    assert (letter.task, letter.route, len(letter.attempts)) == ("shop.charge", "money", 1)
    assert "int(amount)" in letter.traceback
    dlq.assert_dead(app.tasks["shop.charge"], exception="ValueError")
    dlq.assert_retried("charge", times=0)


def test_no_retry_waits_not_even_one_that_would_be_parked(app: Celery, dlq: DeadLetters) -> None:
    assert dlq.run(app.tasks["shop.mail"]) is None
    dlq.assert_retried("shop.mail", times=2)
    dlq.assert_retried("mail")


def test_a_letter_has_the_waits_that_its_retries_would_have_had(
    app: Celery, dlq: DeadLetters, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app.tasks["shop.charge"], "run", lambda amount: {}[amount])
    letter = dlq.run(app.tasks["shop.charge"], 1)
    assert letter is not None
    assert letter == dlq.assert_dead("charge", reason="exhausted", exception=KeyError)
    assert len([one for one in letter.attempts if one.delay_s]) == 8


def test_results_and_countdowns_work_without_waiting(app: Celery, dlq: DeadLetters) -> None:
    sent = app.tasks["shop.charge"].apply_async(("20",), countdown=3_600)
    assert sent.get(timeout=10) == 20


def test_a_message_ends_in_whatever_way(app: Celery, dlq: DeadLetters) -> None:
    app.tasks["shop.plain"].delay()
    app.tasks["shop.charge"].apply_async(("20",), expires=-1)
    dlq.wait()
    assert not dlq.letters()
    app.tasks["shop.reject"].delay()
    app.send_task("shop.unknown")
    assert {letter.reason for letter in dlq.letters()} == {"rejected", "unknown_task"}


def test_a_redrive_has_ended_when_a_wait_ends(
    app: Celery, dlq: DeadLetters, monkeypatch: pytest.MonkeyPatch
) -> None:
    letter = dlq.run(app.tasks["shop.charge"], "1.50")
    assert letter is not None
    monkeypatch.setattr(app.tasks["shop.charge"], "run", float)
    dlq.queue.redrives.start(Filter(ids=(letter.task_id,)), who="test")
    assert dlq.letters() == []


def test_a_failed_assertion_says_what_is_there(app: Celery, dlq: DeadLetters) -> None:
    app.tasks["shop.charge"].delay("1.50")
    app.tasks["shop.charge"].delay("2")
    with pytest.raises(AssertionError) as failed:
        dlq.assert_dead("charge", reason="exhausted", exception=KeyError, count=2)
    said = str(failed.value)
    assert said.startswith(
        "expected 2 dead letters with task charge, exception KeyError, reason exhausted; found 0.\n"
    )
    assert "is dead: reason terminal, ValueError: invalid literal" in said
    assert "0 retries; success" in said
    with pytest.raises(AssertionError, match=r"expected 1 dead letter with task charge, exc"):
        dlq.assert_dead("charge", exception=KeyError)
    with pytest.raises(AssertionError, match=r"expected 3 retries of charge; found 0\."):
        dlq.assert_retried("charge", times=3)
    with pytest.raises(AssertionError, match=r"expected some retries of charge; found 0\."):
        dlq.assert_retried("charge")
    with pytest.raises(
        AssertionError, match=r"task mail; found 0\.\nDead letters:\n  shop\.charge"
    ):
        dlq.assert_dead("mail")
    with pytest.raises(ValueError, match=r"assert not dlq\.letters\(task\)"):
        dlq.assert_dead("charge", count=0)
    for check in (dlq.assert_dead, dlq.assert_retried, dlq.letters):
        with pytest.raises(
            ValueError, match=r"'chrage' is not a task of this app; did you mean 'shop.charge'"
        ):
            check("chrage")


def test_verdicts_by_the_rules_of_the_app_and_of_a_task(app: Celery, dlq: DeadLetters) -> None:
    charge = app.tasks["shop.charge"]
    dlq.assert_verdict(KeyError(), "transient", rule="shop.lookup")
    charge.dlq_terminal = (KeyError,)
    dlq.assert_verdict(KeyError(), "terminal", task=charge)
    with pytest.raises(AssertionError, match=r"expected TimeoutError to be terminal by a\.rule; it is "
                                             r"transient by os\.network \(type=TimeoutError\)"):  # fmt: skip
        dlq.assert_verdict(TimeoutError(), "terminal", rule="a.rule")


def test_a_wait_ends_and_says_what_has_not(
    app: Celery, dlq: DeadLetters, monkeypatch: pytest.MonkeyPatch
) -> None:
    released = threading.Event()
    monkeypatch.setattr(app.tasks["shop.charge"], "run", lambda amount: released.wait(60))
    app.tasks["shop.charge"].delay(1)
    dlq.patience_s = 0.2
    with pytest.raises(
        AssertionError, match=r"have not ended after 0\.2 s.*\n  shop\.charge\[.*celery"
    ):
        dlq.wait()
    released.set()
    dlq.patience_s = 30
    dlq.wait()


def test_a_test_touches_nothing_of_the_app_and_calls_nobody(
    app: Celery, called: list[object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CELERY_BROKER_URL", "redis://127.0.0.1:1/3")
    monkeypatch.setenv("CELERY_DLQ_STORE_URL", "sqlite:////nowhere/store.sqlite3")
    app.finalize()
    queue, current = DeadLetterQueue.of(app), current_app._get_current_object()
    broker = app.connection_for_write().as_uri()
    assert "127.0.0.1:1/3" in broker
    before = dict(vars(queue)), dict(app.conf.changes), dict(os.environ)
    amqp, backend, handlers = app.amqp, app.backend, dict(queue.handlers)
    with in_a_thread(app, tmp_path / "dlq") as letters:
        assert letters.queue is queue
        letters.run(app.tasks["shop.charge"], "1.50")
        letters.assert_dead("charge")
    assert called == []
    assert (dict(vars(queue)), dict(app.conf.changes), dict(os.environ)) == before
    assert (app.amqp, app.backend, queue.handlers) == (amqp, backend, handlers)
    assert app.connection_for_write().as_uri() == broker
    assert current_app._get_current_object() is current


def test_a_message_that_one_test_leaves_does_not_run_in_the_next(
    app: Celery, tmp_path: Path
) -> None:
    with in_a_thread(app, tmp_path / "1") as letters:
        letters.queue.app.control.cancel_consumer("celery", reply=True)
        app.tasks["shop.charge"].delay("1.50")
    with in_a_thread(app, tmp_path / "2") as letters:
        app.tasks["shop.charge"].delay("2")
        assert letters.letters() == []


def test_a_wrong_setting_is_an_error_and_not_a_wait(app: Celery, tmp_path: Path) -> None:
    app.conf.dlq_max_attempts = 0
    with pytest.raises(SettingsError, match="dlq_max_attempts"), in_a_thread(app, tmp_path):
        pass


def run_pytest(directory: Path, *words: str) -> subprocess.CompletedProcess[str]:
    options = ("-q", "-W", "error", "-p", "pytest_celery_dlq", "-p", "no:xdist")
    return subprocess.run(
        [sys.executable, "-m", "pytest", *options, *words],
        cwd=directory, env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True, text=True, timeout=300,
    )  # fmt: skip


def test_it_imports_nothing_until_it_is_used(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(
        "import sys\n\n"
        "def test_it():\n"
        "    assert 'pytest_celery_dlq' in sys.modules\n"
        "    assert not {'celery', 'kombu', 'celery_dlq', 'sqlalchemy'} & set(sys.modules)\n"
    )
    ran = run_pytest(tmp_path)
    assert ran.returncode == 0, ran.stdout


def test_an_app_is_needed_and_celerys_own_fixture_has_one(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(
        "from celery import shared_task\n"
        "from celery_dlq import DLQTask\n\n"
        "@shared_task(base=DLQTask)\n"
        "def fails(): raise ValueError\n\n"
        "def test_it(dlq):\n"
        "    fails.delay()\n"
        "    dlq.assert_dead(fails)\n"
    )
    ran = run_pytest(tmp_path)
    assert "The fixture dlq needs your Celery app. Add this to conftest.py:" in ran.stdout
    ran = run_pytest(tmp_path, "-p", "celery.contrib.pytest")
    assert ran.returncode == 0, ran.stdout


def test_a_worker_that_does_not_start_is_an_error_with_its_log(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text("from celery import Celery\napp = Celery('shop')\n")
    (tmp_path / "test_it.py").write_text(
        "def test_it(dlq_worker):\n    dlq_worker('shop', '--pool=none', broker='redis://localhost')\n"
    )
    ran = run_pytest(tmp_path)
    assert "RuntimeError: the worker did not start" in ran.stdout
    assert "--pool" in ran.stdout


def test_the_example_project_has_such_tests(tmp_path: Path) -> None:
    tests = ROOT / "example_project" / "tests"
    # The settings of this package's own tests are not the shop's.
    ran = run_pytest(tmp_path, "-c", os.devnull, "--rootdir", str(tests), str(tests))
    assert ran.returncode == 0, ran.stdout
    assert "5 passed" in ran.stdout
