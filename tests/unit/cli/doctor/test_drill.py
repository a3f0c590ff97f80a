"""``dlq drill``: what it prints, and what it refuses. Real drills are in tests/integration/screens."""

import json

import pytest

from celery_dlq import __version__
from celery_dlq.cli.session import Session
from celery_dlq.drill import run as drills
from celery_dlq.drill.account import Account, Result

LETTER = Account(
    scenario="fail", title="a task fails for good", result=Result.OK, sent=1, letters=1, seconds=0.2,
    text="1 letter (terminal)",
)  # fmt: skip
GAP = Account(
    scenario="kill-worker", title="the worker is killed", result=Result.GAP, sent=4, done=3, seconds=90.0,
    text="3 done, 1 neither done nor a letter; see: celery -A <app> dlq doctor",
)  # fmt: skip


@pytest.fixture
def accounts(monkeypatch):
    """The accounts of the next drill, and the arguments that it was called with."""
    given, calls = [LETTER], []

    def drill(_app, app_name, _settings, *, on_account, **options):
        calls.append((app_name, options))
        for account in given:
            on_account(account)
        return [*given]

    monkeypatch.setattr(drills, "drill", drill)
    monkeypatch.setattr(Session, "app_name", "shop")
    return given, calls


def test_the_account_is_a_table(run, accounts, store):
    _, calls = accounts
    done = run("drill")
    assert done.exit_code == 0, done.output
    assert "fail ok" in " ".join(done.stdout.split())
    assert "a task fails for good: 1 letter (terminal)" in done.stdout
    assert "fail: ok" in done.stderr
    first, *_, last = done.stdout.splitlines()
    assert first.startswith("Tests memory://")
    assert (
        f"{store.database.url.database} with the pool prefork, celery_dlq {__version__}, Celery"
        in first
    )
    assert first.endswith(": 38 messages in 11 scenarios.")
    assert last == "1 sent, 1 accounted for"
    assert calls == [("shop", {"only": (), "pool": None, "store_url": None})]


def test_a_gap_ends_with_1(run, accounts):
    accounts[0].append(GAP)
    done = run("drill")
    assert done.exit_code == 1
    assert "1 neither done nor a letter" in done.stdout
    assert done.stdout.splitlines()[-1] == "5 sent, 4 accounted for"


def test_options_are_passed_on(run, accounts):
    done = run(
        "drill",
        "--only",
        "fail",
        "--only",
        "poison",
        "--worker-pool",
        "threads",
        "--store-url",
        "sqlite:///x",
    )
    assert done.exit_code == 0, done.output
    assert ": 2 messages in 2 scenarios." in done.stdout
    assert accounts[1] == [
        ("shop", {"only": ("fail", "poison"), "pool": "threads", "store_url": "sqlite:///x"})
    ]


def test_records_have_the_account_and_what_the_configuration_leaves_open(run, accounts, app):
    app.conf.dlq_recorder = False
    found = json.loads(run("drill", "--format", "json").stdout)
    assert found[0] == {
        "scenario": "fail", "title": "a task fails for good", "result": "ok", "sent": 1, "done": 0,
        "letters": 1, "seconds": 0.2, "text": "1 letter (terminal)",
    }  # fmt: skip
    assert ("acks", "open") in [(one["scenario"], one["result"]) for one in found]


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (("--only", "storm"), 2, "'storm' is not a scenario; there are fail, recover"),
        ((), 1, "name it: celery -A <app> dlq drill"),
    ],
)
def test_what_cannot_be_drilled_is_refused(run, words, status, said):
    done = run("drill", *words)
    assert done.exit_code == status
    assert said in done.stderr.replace("celery -A shop", "celery -A <app>")


def test_a_broker_that_is_away_is_named_before_anything_is_made(run, accounts, app):
    app.conf.broker_url = "redis://127.0.0.1:1/0"
    done = run("drill")
    assert done.exit_code == 1
    assert "does not answer" in done.stderr
    assert accounts[1] == []
