"""``dlq groups regroup``: letters get other groups, and decisions follow or are offered."""

import json
import shlex
from contextlib import nullcontext
from datetime import timedelta
from itertools import chain, repeat

import pytest
from support.factories import T0, attempt, letter

from celery_dlq.cli import session
from celery_dlq.cli.exits import DONE, FAILED, INTERRUPTED, PARTLY, USAGE
from celery_dlq.model.fingerprint import own_fingerprint
from celery_dlq.model.group import Annotate, Assign, GroupStatus, Ignore, Resolve

CHARGE, MAIL = "9c1e0000deadbeef", "aaaa000000000000"
BY_TASK = own_fingerprint(["shop.charge"])


def by_task(failure):
    return failure.task


def all_in_one(failure):
    return "everything"


def by_message(failure):
    return failure.message


def by_frame(failure):
    return failure.frames[0]


def raises(failure):
    raise RuntimeError("no [red]recipe")


def wrong(failure):
    return 7


@pytest.fixture(autouse=True)
def ada(monkeypatch):
    monkeypatch.setattr(session.getpass, "getuser", lambda: "ada")


@pytest.fixture
def recipe(app):
    """Sets the recipe."""

    def use(given):
        app.conf.dlq_fingerprint = given
        for name in ("_read_settings", "settings", "grouping"):
            app.dead_letter_queue.__dict__.pop(name, None)

    return use


@pytest.fixture
def decide(store):
    def decide(name, *acts):
        for act in acts:
            store.groups.triage(name, act, who="bob", now=T0 + timedelta(minutes=50))

    return decide


def names(store, *ids):
    return [store.letters.get(one).fingerprint for one in ids]


def test_a_dry_run_shows_and_changes_nothing(run, store, three, recipe, decide):
    recipe(by_task)
    decide(CHARGE, Ignore(), Assign(owner="ann"))
    before = store.groups.get(CHARGE, now=T0)
    result = run("groups", "regroup", "--dry-run")
    assert result.exit_code == DONE
    rows = [line.split() for line in result.stdout.splitlines()]
    names_of = ["shop.charge", "ValueError", "owner,", "status"]
    assert [CHARGE, "renamed", "2", BY_TASK, *names_of] in rows
    assert "Would move 3 of 3 dead letters to other groups. 0 groups would stay" in result.stdout
    assert names(store, *three) == [CHARGE, CHARGE, MAIL]
    assert store.groups.get(CHARGE, now=T0) == before
    assert store.regroupings.last() is None
    assert store.audit.find().rows[0].act == "assign"


def test_letters_and_decisions_move(run, read, store, three, recipe, decide):
    recipe(f"{__name__}.by_task")
    decide(CHARGE, Ignore(), Assign(owner="ann"), Annotate(note="known"))
    result = run("groups", "regroup", "--yes", "--why", "fewer groups")
    assert result.exit_code == DONE
    assert "Moved 3 of 3 dead letters to other groups." in result.stdout
    assert names(store, *three)[:2] == [BY_TASK, BY_TASK]
    found = store.groups.get(BY_TASK, now=T0)
    assert (found.status, found.owner, found.note) == (GroupStatus.IGNORED, "ann", "known")
    (row,) = store.audit.find(act="regroup").rows
    assert (row.who, row.why, row.count) == ("ada", "fewer groups", 3)
    assert row.detail == {"recipe": f"{__name__}.by_task"}
    (record,) = [
        one for one in read("groups", "regroup", "--result") if one["fingerprint"] == CHARGE
    ]
    assert record == {
        "fingerprint": CHARGE, "task": "shop.charge", "exception_type": "ValueError",
        "becomes": "renamed", "letters_to": {BY_TASK: 2}, "letters_left": 0,
        "follows": ["note", "owner", "status"], "offered": [], "tickets_left": [],
    }  # fmt: skip
    assert "Moved 0 of 3" in run("groups", "regroup", "--yes").stdout


def test_decisions_are_offered_where_a_group_is_split(run, read, store, recipe, decide):
    texts = ("one", "two")
    store.letters.save([letter(text, attempt(), message=text) for text in texts])
    recipe(by_message)
    until = T0 + timedelta(days=9)
    decide(
        CHARGE, Ignore(until=until, rate=100, count=7), Assign(owner="ann"), Annotate(note="-a b")
    )
    foreseen = read("groups", "regroup", "--dry-run")
    assert run("groups", "regroup", "--yes").exit_code == DONE
    done = read("groups", "regroup", "--result")
    (record,) = done
    assert foreseen == done
    assert (record["becomes"], record["follows"]) == ("split", [])
    first = min(own_fingerprint([text]) for text in texts)
    assert record["offered"][:3] == [
        f"celery dlq groups ignore {first} --until {until.isoformat()} "
        "--until-rate 100/h --until-count 7",
        f"celery dlq groups assign {first} ann",
        f"celery dlq groups note {first} -- '-a b'",
    ]
    for line in record["offered"]:
        assert run(*shlex.split(line)[2:]).exit_code == DONE
    assert store.groups.get(first, now=T0).note == "-a b"
    assert read("groups", "regroup", "--result")[0]["offered"] == []


def test_the_decisions_of_merged_groups_that_do_not_follow_are_offered(
    run, store, three, recipe, decide
):
    recipe(all_in_one)
    decide(MAIL, Resolve(release="1.5"))
    decide(CHARGE, Assign(owner="ann"))
    store.groups.triage(CHARGE, Ignore(), who="bob", now=T0 + timedelta(minutes=55))
    result = run("groups", "regroup", "--yes")
    target = own_fingerprint(["everything"])
    assert result.stdout.count("merged") == 2
    assert f"celery dlq groups resolve {target} --release 1.5" in result.stdout
    assert "groups ignore" not in result.stdout


def test_it_asks_first(run, store, three, recipe, terminal):
    recipe(by_task)
    result = run("groups", "regroup")
    assert result.exit_code == USAGE
    assert f"Regroup 3 dead letters by {__name__}.by_task? There is no terminal" in result.stderr
    terminal.sit_down()
    assert run("groups", "regroup", answer="n\n").exit_code == FAILED
    assert names(store, *three) == [CHARGE, CHARGE, MAIL]
    assert run("groups", "regroup", answer="y\n").exit_code == DONE
    assert names(store, *three)[0] == BY_TASK


@pytest.mark.parametrize(
    ("given", "said", "status"),
    [
        (by_frame, "3 dead letters stay in their groups: the app frames are needed", DONE),
        (None, "3 dead letters stay in their groups: the app frames are needed", DONE),
        (raises, f"{__name__}.raises raised RuntimeError: no [red]recipe.", PARTLY),
        (
            wrong,
            f"{__name__}.wrong returned int, not a string, a list of strings, or None.",
            PARTLY,
        ),
    ],
)
def test_letters_that_keep_their_groups_are_counted(run, store, three, recipe, given, said, status):
    recipe(given)
    for words in (("--dry-run",), ("--yes",)):
        result = run("groups", "regroup", *words)
        assert result.exit_code == status
        assert said in " ".join(result.stdout.split())
    assert names(store, *three) == [CHARGE, CHARGE, MAIL]


@pytest.mark.parametrize("given", ["no.such.recipe", "math.pi"])
def test_a_recipe_that_cannot_be_used_is_an_error(run, three, recipe, given):
    recipe(given)
    result = run("groups", "regroup", "--dry-run")
    assert result.exit_code == FAILED
    assert f"dlq_fingerprint: {given!r} cannot be" in result.stderr


@pytest.mark.parametrize("form", ["table", "json"])
def test_without_letters(run, form):
    for words in (("--dry-run",), ("--yes",), ("--result",)):
        result = run("groups", "regroup", *words, "--format", form)
        assert (result.exit_code, bool(result.stdout)) == (DONE, True)
        assert form == "table" or json.loads(result.stdout) == []


def test_options_that_exclude_each_other(run, three):
    result = run("groups", "regroup", "--dry-run", "--detach")
    assert result.exit_code == USAGE
    assert "--dry-run and --detach exclude each other" in result.stderr


def test_a_worker_can_do_it(run, store, three, recipe):
    recipe(by_task)
    result = run("groups", "regroup", "--detach", "--yes")
    assert result.stdout.strip() == (
        "A worker will regroup 3 dead letters. See: celery dlq groups regroup --result"
    )
    last = store.regroupings.last()
    assert (last.is_detached, last.looked) == (True, 0)
    shown = run("groups", "regroup", "--result").stdout
    assert "The regrouping that ada began at" in shown
    assert "is not over. Moved 0 of 0 dead letters" in shown


def test_an_interrupted_one_is_continued(run, store, three, recipe, monkeypatch, terminal):
    recipe(by_task)
    monkeypatch.setattr("celery_dlq.regroup.engine.LETTERS_AT_ONCE", 2)
    asked = chain([False, True], repeat(False))
    monkeypatch.setattr(
        "celery_dlq.cli.letters.regroup.stopping_on_interrupt",
        lambda: nullcontext(lambda: next(asked)),
    )
    result = run("groups", "regroup", "--yes")
    assert result.exit_code == INTERRUPTED
    assert "Interrupted after 2 dead letters." in result.stderr
    result = run("groups", "regroup")
    assert f"Continue to regroup 3 dead letters by {__name__}.by_task, which" in result.stderr
    result = run("groups", "regroup", "--yes")
    assert "Moved 3 of 3 dead letters" in result.stdout
