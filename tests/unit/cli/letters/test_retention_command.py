import json
from datetime import timedelta

import pytest
from support.factories import attempt, letter

from celery_dlq import Filter, Keep, Retention
from celery_dlq.cli import session
from celery_dlq.model.states import State


@pytest.fixture
def ada(monkeypatch):
    monkeypatch.setattr(session.getpass, "getuser", lambda: "ada")


@pytest.fixture
def place(app, tmp_path):
    """An archive; set before the store reads the settings."""
    (tmp_path / "archive").mkdir()
    app.conf.dlq_archive_url = f"file://{tmp_path / 'archive'}"


@pytest.fixture
def configured(app):
    """Set before the store reads the settings."""
    app.conf.dlq_retention = Retention(
        letters=[Keep(timedelta(days=30), where=Filter(task="shop.mail"))]
    )


@pytest.fixture
def closed(configured, store):
    """Three closed letters. One of them has expired."""
    long_ago = store.now() - timedelta(days=31)
    tasks = {"a1": "shop.charge", "b1": "shop.mail", "c1": "shop.mail"}
    store.letters.save(
        [letter(name, attempt(failed_at=long_ago), task=task) for name, task in tasks.items()]
    )
    store.closing.discard(Filter(ids=("a1", "b1")), who="ann", why="", now=long_ago)
    store.closing.discard(Filter(ids=("c1",)), who="ann", why="", now=store.now())
    return store


def left(store) -> list[str]:
    found = store.letters.find(Filter(states=frozenset(State))).letters
    return sorted(one.task_id for one in found)


def test_the_plan_shows_what_expires_and_deletes_nothing(run, closed):
    result = run("retention", "plan")
    assert result.exit_code == 0, result.stderr
    mail, others = result.stdout.splitlines()[1:]
    assert mail.split()[:5] == ["task=shop.mail", "30", "d", "2", mail.split()[4]]
    assert others.split()[:4] == ["all", "others", "ever", "1"]
    assert left(closed) == ["a1", "b1", "c1"]


def test_the_plan_as_json(run, closed):
    mail, others = json.loads(run("retention", "plan", "--format", "json").stdout)
    assert (mail["filter"], mail["keep_s"]) == ({"task": "shop.mail"}, 30 * 86_400)
    assert (mail["letters"], mail["expired"]) == (2, 1)
    assert mail["bytes"] == 2 * mail["expired_bytes"] > 0
    assert (mail["within_day"], mail["within_week"]) == (0, 0)
    assert (others["filter"], others["keep_s"], others["letters"]) == (None, None, 1)


def test_a_round_can_be_run_at_once(run, closed):
    result = run("retention", "run")
    assert (result.exit_code, result.stdout) == (0, "Deleted 1 dead letter.\n")
    assert left(closed) == ["a1", "c1"]
    assert run("retention", "run").stdout == "Deleted 0 dead letters.\n"


def test_a_round_by_hand_is_audited_under_the_operators_name(run, closed, ada):
    assert run("retention", "run").exit_code == 0
    [act] = closed.audit.find(act="expire").rows
    assert (act.who, act.count) == ("ada", 1)


def test_a_move_into_the_archive_is_audited_under_the_operators_name(run, place, closed, ada):
    assert run("retention", "run").stdout == "Archived 1 dead letter.\n"
    [act] = closed.audit.find(act="archive").rows
    assert (act.who, act.count) == ("ada", 1)


def test_while_a_worker_runs_a_round_the_command_says_so(run, closed):
    assert closed.leases.take("retention", holder="a worker", seconds=60)
    result = run("retention", "run")
    assert result.exit_code == 1
    assert "A worker or another command removes letters at the moment." in result.stderr
    assert left(closed) == ["a1", "b1", "c1"]


def test_a_setting_that_is_not_valid_is_refused_with_what_is_allowed(run, app):
    app.conf.dlq_retention = 30
    result = run("retention", "plan")
    assert result.exit_code == 1
    assert "dlq_retention" in result.stderr
    assert "a celery_dlq.Retention object, or None" in result.stderr
