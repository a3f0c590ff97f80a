"""Names that a shell completes."""

import click
import pytest
from click.shell_completion import ShellComplete
from support.factories import attempt, letter

from celery_dlq.cli import dlq
from celery_dlq.model.operation import OperationState

CHARGE, MAIL = "9c1e0000deadbeef", "aaaa000000000000"


@pytest.fixture
def offered(app):
    """The names that are offered after these words; the last word is incomplete."""

    def offered(*words):
        celery = click.Group(
            "celery", params=[click.Option(["--app"], default=app, type=click.UNPROCESSED)]
        )
        celery.add_command(dlq)
        *before, beginning = words
        found = ShellComplete(celery, {}, "celery", "_X").get_completions(
            ["dlq", *before], beginning
        )
        return [item.value for item in found]

    return offered


@pytest.mark.parametrize(
    ("words", "names"),
    [
        (("show", ""), ["77e1", "0d3f2222-bbbb", "0d3f1111-aaaa"]),
        (("show", "0d3f"), ["0d3f1111-aaaa", "0d3f2222-bbbb"]),
        (("redrive", "--dry-run", "77"), ["77e1"]),
        (("redrive", "77e1", "0d3f1"), ["0d3f1111-aaaa"]),
        (("explain", "77"), ["77e1"]),
        (("edit", "77"), ["77e1"]),
        (("audit", "list", "--letter", "77"), ["77e1"]),
        (("show", "none"), []),
        (("groups", "show", ""), [CHARGE, MAIL]),
        (("groups", "show", "9c"), [CHARGE]),
        (("groups", "ignore", "--until", "3d", "aa"), [MAIL]),
        (("list", "--group", "aa"), [MAIL]),
        (("list", "--task", ""), ["shop.charge", "shop.mail"]),
        (("list", "--task", "shop.m"), ["shop.mail"]),
        (("list", "--task", "ch"), ["charge"]),
        (("explain", "shop"), ["shop.charge"]),
        (("explain", "celery"), []),
    ],
)  # fmt: skip
def test_names(offered, three, words, names):
    assert offered(*words) == names


def test_operations(offered, store, operation):
    store.operations.create(operation("77aa00000000", OperationState.PLANNED))
    for words in (
        ("operations", "show", ""),
        ("operations", "pause", "77"),
        ("list", "--operation", "77"),
    ):
        assert offered(*words) == ["77aa00000000"]
    assert offered("operations", "show", "88") == []


def test_a_group_that_was_decided_about_is_offered_without_open_letters(offered, run, three):
    run("groups", "ignore", "aaaa")
    run("discard", "--group", "aaaa", "--why", "x", "--yes")
    assert MAIL in offered("groups", "reopen", "")


def test_only_plain_names_are_offered(offered, store):
    names = ["$(reboot)", "a b", "a;b", "`id`", "a\nb", "\x1b[2J", "-rf", "plain.name-1"]
    store.letters.save([letter(name, task=name, fingerprint=name) for name in names])
    for words in (("show", ""), ("groups", "show", ""), ("list", "--task", "")):
        assert offered(*words) == ["plain.name-1"]


def test_not_too_many(offered, store):
    store.letters.save([letter(f"a{number}", attempt(minutes=number)) for number in range(60)])
    assert len(offered("show", "")) == len(offered("show", "a")) == 50


def test_a_store_that_does_not_answer(offered, app, capfd):
    app.conf.dlq_store_url = "postgresql://ann:s3cret@127.0.0.1:1/none"
    assert (
        offered("show", "") == offered("groups", "show", "") == offered("list", "--task", "") == []
    )
    assert capfd.readouterr() == ("", "")


def test_a_store_that_does_not_exist(offered, app, tmp_path, capfd):
    app.conf.dlq_store_url = f"sqlite:///{tmp_path}/absent.sqlite3"
    assert offered("show", "") == []
    assert capfd.readouterr() == ("", "")
    assert not (tmp_path / "absent.sqlite3").exists()


def test_an_app_that_is_not_there(capfd):
    celery = click.Group("celery", params=[click.Option(["-A", "--app"])], commands={"dlq": dlq})
    words = ["-A", "no_such_module", "dlq", "show"]
    assert ShellComplete(celery, {}, "celery", "_X").get_completions(words, "") == []
    assert capfd.readouterr() == ("", "")


def test_a_setting_that_is_not_valid(offered, app):
    app.conf.dlq_store_timeout = "long"
    app.conf.dlq_max_attempts = "many"
    assert offered("show", "") == []


def test_an_app_that_prints_and_ends_the_process(three, monkeypatch, capfd):
    def find_app(_name):
        print("hello")
        raise SystemExit(3)

    monkeypatch.setattr("celery.app.utils.find_app", find_app)
    celery = click.Group("celery", params=[click.Option(["-A", "--app"])], commands={"dlq": dlq})
    found = ShellComplete(celery, {}, "celery", "_X").get_completions(
        ["-A", "shop", "dlq", "show"], ""
    )
    assert found == []
    assert capfd.readouterr() == ("", "")


def test_the_words_about_a_name_are_plain_too(app, store):
    store.letters.save([letter("a", task="shop.$(x)", exception_type="shop.Bad")])
    celery = click.Group(
        "celery", params=[click.Option(["--app"], default=app, type=click.UNPROCESSED)]
    )
    celery.add_command(dlq)
    (item,) = ShellComplete(celery, {}, "celery", "_X").get_completions(["dlq", "show"], "")
    assert (item.value, item.help) == ("a", "Bad")
