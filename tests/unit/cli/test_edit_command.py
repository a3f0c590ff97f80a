"""``dlq edit``, with an editor that does as the test says."""

import json
import sys

import pytest
from factories import letter

from celery_dlq.cli import edit as module
from celery_dlq.states import State


@pytest.fixture
def editor(tmp_path, monkeypatch):
    """Sets $EDITOR to a program that does something with the text."""

    def editor(change):
        script = tmp_path / "editor.py"
        script.write_text(
            "import json, sys\npath = sys.argv[1]\ntext = open(path).read()\n"
            f"{change}\nopen(path, 'w').write(text)\n"
        )
        monkeypatch.setenv("VISUAL", f"{sys.executable} {script}")

    return editor


CURRENCY = "text = text.replace('EUX', 'EUR')"


def test_the_message_is_changed_and_its_original_kept(run, store, editor):
    store.save([letter("0d3f1111")])
    editor(CURRENCY)
    done = run("edit", "0d3f")
    assert done.exit_code == 0, done.output
    assert '- kwargs.currency = "EUX"' in done.stdout
    assert '+ kwargs.currency = "EUR"' in done.stdout
    assert "dlq redrive 0d3f1111" in done.output
    after = store.get("0d3f1111")
    assert json.loads(after.envelope.body)[1] == {"currency": "EUR"}
    assert after.kwargs == {"currency": "EUR"}
    [change] = store.changes_of("0d3f1111")
    assert json.loads(change.before.body)[1] == {"currency": "EUX"}
    assert change.how == "edit"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("", "Nothing was changed"),
        ("text = text.replace('EUX', 'EUX')", "Nothing was changed"),
        ("text = ''", "It is no JSON"),
        ("text = text[:-3]", "It is no JSON"),
        ("text = '{}'", "must be a JSON object"),
        ("text = text.replace('[', '{').replace(']', '}').replace('17', '')", "args are of type"),
    ],
)
def test_what_is_refused_changes_nothing(run, store, editor, change, words):
    store.save([letter("0d3f1111")])
    before = store.get("0d3f1111")
    editor(change)
    done = run("edit", "0d3f")
    assert done.exit_code == 1
    assert words in done.stderr
    assert store.get("0d3f1111") == before
    assert store.changes_of("0d3f1111") == []


def test_an_editor_that_leaves_no_file_changes_nothing(run, store, editor):
    store.save([letter("0d3f1111")])
    editor("import os; os.remove(path); sys.exit()")
    result = run("edit", "0d3f")
    assert result.exit_code == 1
    assert "Nothing was changed: what was edited cannot be read" in result.stderr
    assert store.get("0d3f1111").envelope == letter("0d3f1111").envelope


def test_at_a_terminal_one_may_try_again(run, store, editor, monkeypatch):
    monkeypatch.setattr(module, "is_terminal", lambda _: True)
    store.save([letter("0d3f1111")])
    # The first time it breaks the text; the second time it mends it.
    editor("text = text.replace('!', '').replace('EUX', 'EUR') if '!' in text else text + '!'")
    done = run("edit", "0d3f", answer="y\n")
    assert done.exit_code == 0, done.output
    assert "It is no JSON" in done.stderr
    assert store.get("0d3f1111").kwargs == {"currency": "EUR"}


def test_or_give_up(run, store, editor, monkeypatch):
    monkeypatch.setattr(module, "is_terminal", lambda _: True)
    store.save([letter("0d3f1111")])
    editor("text = '{'")
    assert run("edit", "0d3f", answer="n\n").exit_code == 1


def test_a_letter_that_nobody_knows_or_that_is_not_dead(run, store, editor):
    editor(CURRENCY)
    assert run("edit", "77").exit_code == 1
    store.save([letter("0d3f1111")])
    discarded = run("discard", "0d3f", "--why", "test")
    assert discarded.exit_code == 0, discarded.output
    done = run("edit", "0d3f")
    assert done.exit_code == 1
    assert "is discarded; only the message of a dead letter" in done.stderr
    assert store.get("0d3f1111").state is State.DISCARDED


def test_one_that_changes_while_it_is_edited(run, store, editor, queue, monkeypatch):
    store.save([letter("0d3f1111")])
    editor(CURRENCY)
    monkeypatch.setattr(queue.store, "save_edit", lambda edit: False)
    done = run("edit", "0d3f")
    assert done.exit_code == 1
    assert "changed meanwhile" in done.stderr
