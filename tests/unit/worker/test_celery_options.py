"""Celery's own options: the same body on Celery's base class and on DLQTask. Each row of the table in the
reference has one test here."""

import re
from functools import partialmethod
from pathlib import Path

import pytest
from celery import Task
from celery.exceptions import SoftTimeLimitExceeded
from celery.worker.request import Request
from support.workers.task_tracer import Run

from celery_dlq import DLQTask, Rule
from celery_dlq.worker.end.classes import capturing
from celery_dlq.worker.end.request import DLQRequest

REFERENCE = Path(__file__).parents[3] / "docs" / "reference" / "task_options.md"

BASES = (Task, DLQTask)

#: The options that a test here is about.
tested = set()


class Outage(Exception):
    pass


class Down(Outage):
    pass


def succeed(): ...


def of(*options):
    """Marks the test of these options."""
    tested.update(options)
    return lambda test: test


@pytest.fixture
def both(app):
    """The runs of a body that raises ``error``: on Celery's base class, and on DLQTask."""

    def both(error, *, retries=0, headers=None, bases=BASES, **options):
        def body(self):
            raise error

        made = [
            app.task(body, base=base, bind=True, name=f"{base.__name__}.{len(app.tasks)}", lazy=False,
                     **options)
            for base in bases
        ]  # fmt: skip
        return [Run(task, retries=retries, headers=headers) for task in made]

    return both


def states(runs):
    return [run.state for run in runs]


def waits(runs):
    assert states(runs) == ["RETRY", "RETRY"]
    return [run.result.info.retval.when for run in runs]


EXACT = {"autoretry_for": (Outage,), "retry_jitter": False}


@of("autoretry_for")
def test_further_errors_are_retried_than_those_that_it_names(both):
    named = {"autoretry_for": (LookupError,)}
    assert states(both(KeyError("a"), **named)) == ["RETRY", "RETRY"]
    assert states(both(ConnectionError(), **named)) == ["FAILURE", "RETRY"]
    assert states(both(ValueError(), **named)) == ["FAILURE", "FAILURE"]


@of("dont_autoretry_for")
def test_an_error_that_must_not_be_retried(both):
    named = {"dont_autoretry_for": (Down,)}
    assert states(both(Down(), autoretry_for=(Outage,), **named)) == ["FAILURE", "FAILURE"]
    plain, ours = both(ConnectionError(), dont_autoretry_for=(OSError,))
    assert (plain.state, ours.state) == ("FAILURE", "FAILURE")
    assert ours.failure.explanation.rule == "task.dont_autoretry_for"


@of("throws")
@pytest.mark.parametrize("named", [(Down,), (Outage,), (Exception,)])
def test_an_expected_error_is_retried_if_something_else_asks_for_it(both, named):
    assert states(both(Down(), throws=named, autoretry_for=(Down,))) == ["RETRY", "RETRY"]
    assert states(both(Down(), throws=named, autoretry_for=(Outage,))) == ["RETRY", "RETRY"]
    for ours in ({"dlq_transient": (Outage,)}, {"dlq_rules": (Rule(Outage, "transient"),)}):
        [run] = both(Down(), throws=named, bases=[DLQTask], **ours)
        assert run.state == "RETRY"


@of("throws")
def test_an_expected_error_alone_is_terminal(both):
    plain, ours = both(TimeoutError(), throws=(TimeoutError,))
    assert (plain.state, ours.state) == ("FAILURE", "FAILURE")
    assert ours.failure.explanation.rule == "task.throws"
    assert states(both(TimeoutError(), bases=[DLQTask])) == ["RETRY"]


@of("retry_kwargs")
def test_options_of_the_retries(both):
    chosen = {"retry_kwargs": {"countdown": 7, "max_retries": 5, "priority": 3}, **EXACT}
    assert waits(both(Outage(), **chosen)) == [7, 7]
    assert [run.message.properties["priority"] for run in both(Outage(), **chosen)] == [3, 3]
    assert states(both(Outage(), retries=5, **chosen)) == ["FAILURE", "FAILURE"]
    assert waits(both(Outage(), retry_backoff=2, **chosen)) == [2, 2]


@of("retry_backoff")
def test_the_first_wait(both):
    assert waits(both(Outage(), retry_backoff=3, retries=2, **EXACT)) == [12, 12]
    assert waits(both(Outage(), retry_backoff=True, **EXACT)) == [1, 1]
    assert waits(both(Outage(), retry_backoff=0.5, **EXACT)) == [1, 0.5]
    assert waits(both(Outage(), **EXACT)) == [180, 2]
    assert waits(both(Outage(), retry_backoff=False, **EXACT)) == [180, 180]


@of("retry_backoff_max")
def test_the_longest_wait(both):
    assert waits(both(Outage(), retry_backoff=4, retry_backoff_max=7.5, retries=2, **EXACT)) == [
        7,
        7.5,
    ]
    assert waits(both(Outage(), retry_backoff=1000, **EXACT)) == [600, 300]


@of("retry_jitter")
def test_chance_in_waits(both):
    plain, ours = waits(both(Outage(), autoretry_for=(Outage,), retry_backoff=64))
    assert isinstance(plain, int)
    assert isinstance(ours, float)
    assert 0 <= plain <= 64
    assert 0 <= ours <= 64


@of("max_retries")
def test_the_number_of_retries(both):
    assert states(both(Outage(), retries=2, **EXACT)) == ["RETRY", "RETRY"]
    assert states(both(Outage(), retries=3, **EXACT)) == ["FAILURE", "RETRY"]
    assert states(both(Outage(), retries=8, **EXACT)) == ["FAILURE", "FAILURE"]
    assert states(both(Outage(), max_retries=0, **EXACT)) == ["FAILURE", "FAILURE"]
    assert states(both(Outage(), max_retries=None, retries=9999, **EXACT)) == ["RETRY", "RETRY"]


@of("default_retry_delay")
def test_the_wait_without_a_backoff(both):
    assert waits(both(Outage(), default_retry_delay=9, **EXACT)) == [9, 9]
    assert waits(both(Outage(), default_retry_delay=9, retry_backoff=2, **EXACT)) == [2, 2]


@of("soft_time_limit")
def test_a_soft_limit_is_retried_only_if_it_is_named(both):
    assert states(both(SoftTimeLimitExceeded())) == ["FAILURE", "FAILURE"]
    named = {"autoretry_for": (SoftTimeLimitExceeded,)}
    assert states(both(SoftTimeLimitExceeded(), **named)) == ["RETRY", "RETRY"]


@of("before_start")
def test_its_error_is_not_retried(both):
    def before_start(self, task_id, args, kwargs):
        raise ConnectionError

    named = {"autoretry_for": (ConnectionError,), "before_start": before_start}
    assert states(both(None, **named)) == ["FAILURE", "FAILURE"]


@of("reject_on_worker_lost")
def test_it_is_on(app):
    plain, ours = (app.task(succeed, base=base, name=base.__name__, lazy=False) for base in BASES)
    assert (plain.reject_on_worker_lost, ours.reject_on_worker_lost) == (None, True)


SAME = {
    "acks_late": True, "acks_on_failure_or_timeout": False, "ignore_result": False,
    "store_errors_even_if_ignored": True, "track_started": True, "soft_time_limit": 5, "time_limit": 9,
    "rate_limit": "6/m", "typing": False, "expires": 60, "serializer": "yaml", "priority": 4,
    "trail": False, "send_events": False,
}  # fmt: skip


@of(*SAME)
@pytest.mark.filterwarnings("ignore::celery.exceptions.CDeprecationWarning")  # priority
@pytest.mark.parametrize("option", SAME)
def test_an_option_means_the_same(app, option):
    """It is left as it was set, and as its default; and a retry carries it as Celery's does."""
    app.conf.accept_content = ["json", "yaml"]

    def body():
        raise Outage

    found = []
    for base in BASES:
        plain, chosen = (
            app.task(body, base=base, name=f"{base.__name__}.{kind}", lazy=False, **options)
            for kind, options in (("default", {}), ("set", {option: SAME[option], **EXACT}))
        )
        message = Run(chosen).message
        headers = {
            name: value for name, value in message.headers.items()
            if not name.startswith("x-dlq-") and name not in ("task", "eta", "expires")
        }  # fmt: skip
        seen = message.content_type, message.properties["priority"], "expires" in message.headers
        found.append((getattr(plain, option), getattr(chosen, option), seen, headers))
    assert found[0] == found[1]


HANDLERS = ("before_start", "on_retry", "on_success", "on_failure", "after_return")


def _note(task, calls, name, *args):
    calls.append((name, isinstance(task, Task)))


@of("bind", "on_retry", "on_success", "on_failure", "after_return")
def test_the_handlers_are_called_alike(app):
    """As often, in the same order, and as methods of the task."""

    def body(self, retries):
        assert isinstance(self, Task)
        if self.request.retries < retries:
            raise Outage

    called = []
    for base in BASES:
        calls = []
        handlers = {name: partialmethod(_note, calls, name) for name in HANDLERS}
        task = app.task(
            body,
            base=base,
            bind=True,
            name=base.__name__,
            lazy=False,
            max_retries=1,
            **EXACT,
            **handlers,
        )
        states = [Run(task, most, retries=now).state for most, now in ((0, 0), (1, 0), (2, 1))]
        called.append((states, calls))
    assert called[0] == called[1]
    assert {name for name, _ in called[0][1]} == set(HANDLERS)


@of("Request")
def test_a_request_class_is_combined_with_ours(app):
    class Timed(Request): ...

    task = app.task(succeed, base=DLQTask, name="timed", Request=Timed, lazy=False)
    assert issubclass(capturing(task), DLQRequest)
    assert issubclass(capturing(task), Timed)


def test_the_table_has_the_options_that_are_tested_here():
    section = REFERENCE.read_text().partition("## Celery's options, one by one\n")[2]
    rows = re.findall(r"^\| (`.*?) \|", section.partition("\n## ")[0], re.MULTILINE)
    assert set(re.findall(r"`(\w+)`", " ".join(rows))) == tested
