"""Several teams in one store, at the command line."""

import contextlib

import pytest
from support.factories import attempt, letter, operation

from celery_dlq.model.fingerprint import within
from celery_dlq.model.states import State
from celery_dlq.store.base import Filter
from celery_dlq.store.sql import SQLStore

CAUSE = "9c1e0000deadbeef"


@pytest.fixture
def team(app):
    """Gives the store of a team, which has two letters and an operation."""
    with contextlib.ExitStack() as stores:

        def team(name):
            url = app.conf.dlq_store_url
            store = stores.enter_context(contextlib.closing(SQLStore(url, namespaces=(name,))))
            cause = within(name, CAUSE)
            store.letters.save(
                [
                    letter(f"{name}-{at}", attempt(minutes=at), namespace=name, fingerprint=cause)
                    for at in (1, 2)
                ]
            )
            wanted = Filter(ids=(f"{name}-1",))
            store.operations.create(operation(name * 6, wanted=wanted, detached=True))
            return store

        yield team


@pytest.fixture(params=["*", ["a", "b"]])
def both(app, team, request):
    """The stores of two teams; the app sees both."""
    stores = team("a"), team("b")
    app.conf.dlq_namespace = request.param
    return stores


def test_letters_of_all_are_listed_with_their_namespaces(both, read):
    assert [(one["task_id"], one["namespace"]) for one in read("list")] == [
        ("b-2", "b"), ("a-2", "a"), ("b-1", "b"), ("a-1", "a"),
    ]  # fmt: skip
    assert [one["task_id"] for one in read("list", "--namespace", "b")] == ["b-2", "b-1"]
    assert {one["namespace"] for one in read("groups")} == {"a", "b"}
    assert [one["namespace"] for one in read("groups", "--namespace", "a")] == ["a"]
    assert {one["namespace"] for one in read("operations", "list")} == {"a", "b"}
    assert {one["namespace"] for one in read("audit")} == {"a", "b"}


def test_a_letter_shows_its_namespace(both, read, run):
    assert read("show", "a-1")["namespace"] == "a"
    assert "Namespace" in run("show", "a-1").stdout


def test_an_act_on_letters_of_several_is_refused(both, run):
    for words in (
        ("discard", "--all", "--yes", "--why", "x"),
        ("delete", "--all", "--yes", "--state", "dead", "--open", "--why", "x"),
        ("redrive", "--all", "--yes", "--detach"),
    ):
        done = run(*words)
        assert done.exit_code != 0, words
        assert done.stderr.strip().endswith("name it with --namespace, or in dlq_namespace.")
    a, b = both
    assert a.counts.letters(Filter()) == b.counts.letters(Filter()) == 2
    assert len(a.operations.find()) == len(b.operations.find()) == 1


def test_an_act_belongs_to_the_namespace_of_its_letters(both, run):
    a, b = both
    assert run("discard", "--namespace", "b", "--yes", "--why", "x").exit_code == 0
    assert run("discard", "a-1", "--yes", "--why", "x").exit_code == 0
    assert run("redrive", "a-2", "--yes", "--detach").exit_code == 5  # no worker runs here
    discarded = frozenset({State.DISCARDED})
    assert b.counts.letters(Filter(states=discarded)) == 2
    assert a.counts.letters(Filter(states=discarded)) == 1
    assert [row.act for row in a.audit.find().rows] == ["redrive", "discard", "redrive"]
    assert [row.act for row in b.audit.find().rows] == ["discard", "redrive"]
    assert len(a.operations.find()) == 2


def test_the_work_of_one_app_is_refused(both, run):
    done = run("forget", "--task-id", "a-1", "--yes", "--why", "x")
    assert done.exit_code != 0
    assert "in dlq_namespace" in done.stderr
    assert all(len(store.letters.find(Filter()).letters) == 2 for store in both)


ATTACKS = [
    ("show", "a-1"),
    ("redrive", "a-1", "--yes"),
    ("redrive", "--group", within("a", CAUSE), "--yes"),
    ("discard", "a-1", "--yes", "--why", "x"),
    ("delete", "a-1", "--yes", "--state", "dead", "--open", "--why", "x"),
    ("redrive", "a-1", "--yes", "--set", "args.0=18"),
    ("edit", "a-1"),
    ("operations", "cancel", "aaaaaa"),
    ("groups", "resolve", within("a", CAUSE)),
]


@pytest.mark.parametrize("words", ATTACKS, ids=" ".join)
def test_another_apps_rows_are_not_there(app, team, run, words, monkeypatch, terminal):
    terminal.sit_down()
    monkeypatch.setenv("EDITOR", "true")
    a = team("a")
    before = a.letters.get("a-1"), a.audit.find().rows, a.operations.find()
    app.conf.dlq_namespace = "b"
    done = run(*words)
    assert done.exit_code == 1
    assert "No " in done.stderr
    assert (a.letters.get("a-1"), a.audit.find().rows, a.operations.find()) == before


def test_an_app_without_a_namespace_sees_only_those_without_one(team, store, read):
    team("a")
    store.letters.save([letter("plain")])
    assert [one["task_id"] for one in read("list")] == ["plain"]
