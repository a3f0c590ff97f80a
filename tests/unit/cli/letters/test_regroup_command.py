"""``dlq groups regroup``, ``merge`` and ``split``: letters get other groups."""

import json

import pytest
from support.factories import T0, attempt, letter

from celery_dlq.cli import session
from celery_dlq.cli.exits import DONE, FAILED, INTERRUPTED, PARTLY, USAGE
from celery_dlq.model.fingerprint import Grounds

A, B, C = (f"{name}{'0' * 15}" for name in "abc")
FRAMES = Grounds(
    frames=("shop.pay:charge",), lines=("raise LookupError",), evidence=("status=404",)
)


def by_task(failure):
    return failure.task


def raises(failure):
    raise RuntimeError("no [red]recipe")


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
def noise(store):
    """Three letters of one cause, in three groups."""
    store.letters.save(
        [
            letter(name[:2], attempt(minutes=n), fingerprint=name, grounds=FRAMES)
            for n, name in enumerate((A, B, C))
        ]
    )


def groups(store):
    return {name: store.groups.get(name, now=T0) for name in (A, B, C)}


def open_counts(store):
    return {name: found.open_count for name, found in groups(store).items() if found.open_count}


def test_a_dry_run_shows_and_changes_nothing(run, read, store, noise):
    result = run("groups", "regroup", "--dry-run")
    assert result.exit_code == DONE
    assert "Would move 2 of 3 dead letters; 3 groups become 1." in result.stdout
    assert open_counts(store) == {A: 1, B: 1, C: 1}
    rows = read("groups", "regroup", "--dry-run")
    assert rows == [
        {"fingerprint": name, "task": "shop.charge", "exception_type": "ValueError", "letters_to": {A: 1}}
        for name in (B, C)
    ]  # fmt: skip
    assert store.audit.find().rows == ()


def test_it_is_confirmed_done_and_audited(run, store, noise, terminal):
    assert run("groups", "regroup").exit_code == USAGE
    terminal.sit_down()
    assert run("groups", "regroup", answer="n\n").exit_code == FAILED
    assert open_counts(store) == {A: 1, B: 1, C: 1}
    result = run("groups", "regroup", "--why", "noise", answer="y\n")
    assert "Moved 2 of 3 dead letters to other groups." in result.stdout
    assert open_counts(store) == {A: 3}
    (row,) = store.audit.find(act="regroup").rows
    assert (row.who, row.why, row.count, row.detail) == (
        "ada",
        "noise",
        3,
        {"recipe": "built-in 2"},
    )


def test_a_recipe_of_the_user(run, store, noise, recipe):
    recipe(by_task)
    assert json.loads(run("groups", "regroup", "--yes", "--format", "json").stdout) == {
        "looked_at": 3, "moved": 2,
    }  # fmt: skip
    assert "by the recipe" in run("show", "a0").stdout


def test_a_recipe_that_fails_is_a_part_of_the_result(run, store, noise, recipe):
    recipe(raises)
    for options in (["--dry-run"], ["--yes"]):
        result = run("groups", "regroup", *options)
        assert result.exit_code == PARTLY
        assert "3 dead letters stay in their groups: " in result.stdout
        assert "raised RuntimeError: no [red]recipe." in " ".join(result.stdout.split())
    assert open_counts(store) == {A: 1, B: 1, C: 1}


def test_letters_of_earlier_releases_stay(run, store):
    store.letters.save([letter("a0")])
    result = run("groups", "regroup", "--yes")
    assert result.exit_code == DONE
    said = "1 dead letter stays in its group: an earlier release stored no grounds for grouping."
    assert said in " ".join(result.stdout.split())


def test_a_worker_may_do_it(run, app, store, noise):
    result = run("groups", "regroup", "--detach", "--yes")
    assert result.stdout.strip() == "A worker with this recipe will group 3 dead letters again."
    assert store.regroupings.waiting() == {"built-in 2": 3}
    assert app.dead_letter_queue.groups.regrouper().run()
    assert open_counts(store) == {A: 3}


def test_an_interrupted_one_is_continued(run, app, store, noise, monkeypatch):
    from celery_dlq.upkeep import regroup

    monkeypatch.setattr(
        regroup.Regrouper, "_step", lambda *args: (_ for _ in ()).throw(KeyboardInterrupt)
    )
    assert run("groups", "regroup", "--yes").exit_code == INTERRUPTED
    monkeypatch.undo()
    assert app.dead_letter_queue.groups.regrouper().run()
    assert open_counts(store) == {A: 3}


def test_options_that_exclude_each_other(run, noise):
    result = run("groups", "regroup", "--dry-run", "--detach")
    assert result.exit_code == USAGE
    assert "exclude each other" in result.stderr


def test_without_letters_there_is_nothing_to_do(run, store):
    assert run("groups", "regroup", "--yes").stdout.strip() == "There are no dead letters."


def test_groups_are_merged_and_split(run, read, store, noise):
    merged = run("groups", "merge", "a0", "b0")
    assert (merged.exit_code, merged.stderr) == (DONE, "")
    assert f"Merged group {B} into {A}. To undo that: " in " ".join(merged.stdout.split())
    assert merged.stdout.split()[-4:] == ["groups", "split", A, B]
    assert open_counts(store) == {A: 2, B: 2, C: 1}, "the group is found by either name"
    shown = run("groups", "show", "b0").stdout
    assert (f"Merged      {B}, by ada" in shown, A in shown) == (True, True)
    said = "by task, exception, 1 own frame, the line that raised and status 404; the message is not used"
    assert said in " ".join(shown.split())
    record = read("groups", "show", "a0")
    assert (record["grouped"], [(one["name"], one["who"]) for one in record["merged"]]) == (
        said, [(B, "ada")]
    )  # fmt: skip
    split = run("groups", "split", A, "b0")
    assert split.stdout.strip() == f"Split group {A}, which has 1 open letter now."
    assert open_counts(store) == {A: 1, B: 1, C: 1}


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("merge", "a0", "a0"), "cannot be merged into itself"),
        (("merge", "a0", "ff"), "No group has a fingerprint that begins with 'ff'"),
        (("split", "a0"), "No group was merged into group"),
        (("split", "a0", "c0"), "c0 was not merged into group"),
    ],
)
def test_acts_that_change_nothing_say_why(run, store, noise, args, said):
    result = run("groups", *args)
    assert result.exit_code == FAILED
    assert said in " ".join(result.stderr.split())
    assert open_counts(store) == {A: 1, B: 1, C: 1}


def test_a_letter_says_why_it_is_in_its_group(run, read, noise):
    shown = " ".join(run("show", "a0").stdout.split())
    said = "by task, exception, 1 own frame, the line that raised and status 404; the message is not used"
    assert f"Group {A} Grouped {said}" in shown
    assert read("show", "a0")["grouped"] == said
