"""Tasks that are tried before they are sent, in a process that they may hang or kill."""

import importlib
import json
import sys
import types

import celery
import pytest
from celery import Celery
from support.factories import T0, envelope, letter, opened

from celery_dlq.errors import SandboxError
from celery_dlq.model.operation import Checking, Orders
from celery_dlq.redrive.letter.checks import open_checks
from celery_dlq.redrive.letter.validation import Validator, where_is

SHOP = """
import os, signal, sys, time
from celery import Celery, current_task
from celery.exceptions import Ignore
from celery_dlq import DLQTask

app = Celery("shop_to_validate", broker="memory://", set_as_current=False)

class Hooked(DLQTask):
    name = "hooked"
    def run(self, amount): raise AssertionError("its body was run")
    def validate(self, amount):
        if amount < 0: raise ValueError(f"amount {amount}\\n is below zero")

app.register_task(Hooked())

@app.task(shared=False, name="body", bind=True)
def body(self, amount):
    print("to nobody", input() if amount == 1 else "")
    assert self.request.id == "0d3f" and current_task.name == "body"
    if amount < 0: raise ValueError("below zero")

@app.task(shared=False, name="reads", bind=True)
def reads(self):
    raise ValueError(sorted(self.request.delivery_info.items()))

def check(self, amount):
    if amount < 0: raise ValueError(f"{self.name} of {amount}")

@app.task(shared=False, name="function", base=DLQTask, validate=check)
def function(amount): raise AssertionError("its body was run")

class WithRequest(DLQTask):
    def __call__(self, *args): return super().__call__("a request", *args)

@app.task(shared=False, name="prepended", bind=True, base=WithRequest)
def prepended(self, request, url): raise ValueError(f"{self.request.id}, {request}, {url}")

@app.task(shared=False, name="retries", bind=True)
def retries(self):
    raise self.retry(exc=KeyError("gone"))

@app.task(shared=False, name="ignores")
def ignores(): raise Ignore("nothing to do")

@app.task(shared=False, name="hangs")
def hangs(): time.sleep(60)

@app.task(shared=False, name="dies")
def dies(): os.kill(os.getpid(), signal.SIGKILL)

@app.task(shared=False, name="exits")
def exits(): sys.exit(3)
"""


@pytest.fixture(scope="module")
def shop(tmp_path_factory):
    directory = tmp_path_factory.mktemp("shop")
    directory.joinpath("shop_to_validate.py").write_text(SHOP)
    sys.path.insert(0, str(directory))
    yield importlib.import_module("shop_to_validate").app
    sys.path.remove(str(directory))
    del sys.modules["shop_to_validate"]


@pytest.fixture(scope="module")
def why(shop):
    """The reason, for a letter of a task with some arguments."""
    with Validator(shop, timeout_s=60.0) as validator:
        yield lambda task, *args: validator.why_not(sent(task, *args))


def sent(task, *args):
    body = json.dumps([args, {}, {}]).encode()
    return letter(task=task, envelope=envelope(body=body, headers={"id": "0d3f", "task": task}))


def test_the_hook_is_run_and_not_the_body(why):
    assert why("hooked", 5) is None
    assert why("hooked", -5) == "its validation failed: ValueError: amount -5 is below zero"


def test_the_hook_of_a_function(why):
    assert why("function", 5) is None
    assert why("function", -5) == "its validation failed: ValueError: function of -5"


def test_without_a_hook_the_body_is(why):
    assert why("body", 5) is None
    assert why("body", -5) == "its validation failed: ValueError: below zero"
    assert why("body", "five").startswith("its validation failed: TypeError")


def test_the_body_gets_the_arguments_that_its_base_class_adds(why):
    assert why("prepended", "url") == "its validation failed: ValueError: 0d3f, a request, url"


def test_its_request_says_where_it_came_from(why):
    named = [("exchange", ""), ("priority", 0), ("redelivered", False), ("routing_key", "celery")]
    assert why("reads") == f"its validation failed: ValueError: {named}"


def test_it_has_no_input_and_its_output_goes_nowhere(why):
    assert why("body", 1) == "its validation failed: EOFError: EOF when reading a line"


def test_a_retry_is_the_error_that_asked_for_it(why):
    assert why("retries") == "its validation failed: KeyError: 'gone'"


def test_ignore_is_not_an_error(why):
    assert why("ignores") is None


def test_a_task_that_ends_its_process_is_refused_and_the_next_one_is_fine(why):
    assert why("dies") == "its validation ended the process it ran in (exit status -9)"
    assert why("exits") == "its validation failed: SystemExit: 3"
    assert why("hooked", 5) is None


def test_a_hanging_task_is_killed(shop):
    with Validator(shop, timeout_s=60.0) as validator:
        assert validator.why_not(sent("hooked", 5)) is None
        process = validator._process
        validator._timeout_s = 0.2
        assert "took longer than 0.2 s (validate_timeout_s)" in validator.why_not(sent("hangs"))
        assert process.returncode == -9
        validator._timeout_s = 60.0
        assert validator.why_not(sent("hooked", 5)) is None


def test_the_process_ends_with_the_checks(shop):
    orders = Orders(checking=Checking(validate=True))
    with open_checks(shop, orders) as checks:
        assert "below zero" in checks.check(opened(shop, sent("hooked", -5)), T0).why_not
        process = checks._validator._process
        assert process.poll() is None
    assert process.returncode == -9


def test_the_asking_process_may_die(shop):
    with Validator(shop, timeout_s=1.0) as validator:
        process = validator._started()
        process.stdin.close()
        assert process.wait(timeout=60) == 0


@pytest.fixture
def held_by(monkeypatch):
    """Let modules of these names have the app."""

    def held_by(app, *names):
        for name in names:
            monkeypatch.setitem(sys.modules, name, types.SimpleNamespace(app=app))

    return held_by


def test_an_app_is_not_where_celery_keeps_it(shop, held_by, monkeypatch):
    """As in a worker, whose app is the default one."""
    monkeypatch.setattr(celery._state, "default_app", shop)
    held_by(shop, "celery.somewhere", "__mp_main__", "a_script")
    assert where_is(shop) == "shop_to_validate:app"
    with Validator(shop, timeout_s=60.0) as validator:
        assert validator.why_not(sent("hooked", 5)) is None


@pytest.mark.parametrize(
    ("main", "where"),
    [
        ("shop", "shop:app"),
        ("bank", "bank.making:app"),
        (None, "a_script:app"),
        ("elsewhere", "a_script:app"),
    ],
)
def test_an_app_is_rather_where_its_name_says(held_by, main, where):
    app = Celery(main, set_as_current=False)
    held_by(app, "a_script", "shop.making", "shop", "bank.making")
    assert where_is(app) == where


def test_an_app_that_cannot_be_found():
    with pytest.raises(SandboxError, match="create it in a module of its own"):
        where_is(Celery("nowhere", set_as_current=False))


def test_an_app_that_cannot_be_imported_again(monkeypatch):
    app = Celery("gone", set_as_current=False)
    monkeypatch.setitem(sys.modules, "not_a_file", types.SimpleNamespace(made=app))
    with (
        Validator(app, timeout_s=1.0) as validator,
        pytest.raises(SandboxError, match="not_a_file:made cannot be imported for --validate: Mod"),
    ):
        validator.why_not(sent("x"))
