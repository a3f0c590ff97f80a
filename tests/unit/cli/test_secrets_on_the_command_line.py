"""A secret in every place that may hold one; no command prints it."""

import base64
import json

import pytest
from support.factories import envelope, letter
from support.stores.planted_secrets import GROUP, OPERATION, SECRET, TASK_ID, TEXT, plant

from celery_dlq import DLQTask
from celery_dlq.errors import StoreUnavailable

FORMATS = [(), ("--format", "json"), ("--format", "jsonl"), ("--format", "csv")]


@pytest.fixture(autouse=True)
def planted(store):
    plant(store)


@pytest.mark.parametrize(
    "command",
    [
        ("list", "--state", "dead", "--state", "redriven"),
        ("show", TASK_ID),
        ("show", "5ec4e7bb"),
        ("show", "5ec4e7cc"),
        ("show", "unread"),
        ("groups",),
        ("groups", "show", GROUP),
        ("operations", "list"),
        ("operations", "show", OPERATION),
        ("audit",),
        ("explain", TASK_ID),
        ("stats",),
        ("reclassify", "--all", "--dry-run"),
    ],
    ids=" ".join,
)
def test_no_read_only_command_shows_a_secret(run, command):
    for form in FORMATS:
        result = run(*command, *form)
        assert result.exit_code == 0, (form, result.output)
        assert SECRET not in result.output, form
        is_hidden = command[0] not in ("stats", "reclassify")
        assert ("[redacted]" in result.output) == is_hidden, form


def test_no_secret_is_drawn_on_a_terminal(run, terminal):
    terminal.sit_down(width=200)
    for command in (("list",), ("show", TASK_ID), ("groups",), ("operations", "show", OPERATION)):
        assert SECRET not in run(*command).output


def test_a_dry_run_of_a_repair_hides_secrets(run, app):
    @app.task(name="shop.any", base=DLQTask, shared=False)
    def anything(*args, **kwargs): ...

    change = ["--set", f'args[1][0][1]="{SECRET}2"', "--set", f'kwargs.pwd="{SECRET}3"']
    result = run("redrive", "unread", "--dry-run", "--to-task", "shop.any", *change)
    assert SECRET not in result.output
    assert "+ args[1][0][1] = [redacted]" in result.output
    assert "+ kwargs.pwd = [redacted]" in result.output


def test_an_edit_is_reported_without_secrets(run, queue):
    change = {"kwargs": {"accessToken": f"{SECRET}2", "note": f"redis://:{SECRET}3@h"}}
    diff = queue.edit("unread", who="ann", **change)
    assert SECRET not in diff
    assert SECRET not in run("show", "unread").output


def test_an_error_is_reported_without_secrets(run, store, monkeypatch):
    def fail(*args, **kwargs):
        raise StoreUnavailable(TEXT)

    monkeypatch.setattr(type(store.letters), "find", fail)
    result = run("list")
    assert result.exit_code == 3
    assert "cannot reach postgresql://shop:[redacted]@db/shop" in result.output
    assert SECRET not in result.output


def test_the_names_that_the_app_adds_are_hidden_everywhere(run, app, queue, store):
    app.conf.dlq_redact = ["pin"]
    for name in ("_read_settings", "settings", "redactor"):
        vars(queue).pop(name, None)
    headers = {"id": "a", "task": "shop.charge", "X-Card-Pin": SECRET}
    sent = envelope("a", headers=headers)
    store.letters.save(
        [letter("a", message=f"wrong pin={SECRET}", kwargs={"pin": SECRET}, envelope=sent)]
    )
    for form in ("table", "json"):
        assert SECRET not in run("show", "a", "--format", form).output


def test_the_editor_shows_the_message_unredacted(run, tmp_path, monkeypatch):
    record = json.loads(run("show", TASK_ID, "--body", "--format", "json").output)
    assert SECRET in base64.b64decode(record["body"]).decode()
    seen = tmp_path / "seen.json"
    monkeypatch.setenv("VISUAL", f"sh -c 'cp $0 {seen}'")
    run("edit", "unread")
    edited = json.loads(seen.read_text())
    assert edited["headers"]["X-Auth-Token"] == SECRET
    assert edited["kwargs"]["accessToken"] == SECRET
