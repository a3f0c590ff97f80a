"""``dlq edit``, with an editor that the test controls."""

import json
import sys

import pytest
from support.factories import letter

from celery_dlq.cli.letters import changes as module
from celery_dlq.model.states import State


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


def test_an_edit_keeps_the_original_in_the_history(run, store, editor):
    store.letters.save([letter("0d3f1111")])
    editor(CURRENCY)
    done = run("edit", "0d3f", "--why", "a typo")
    assert done.exit_code == 0, done.output
    assert '- kwargs.currency = "EUX"' in done.stdout
    assert '+ kwargs.currency = "EUR"' in done.stdout
    assert "dlq redrive 0d3f1111" in done.output
    after = store.letters.get("0d3f1111")
    assert json.loads(after.envelope.body)[1] == {"currency": "EUR"}
    assert after.kwargs == {"currency": "EUR"}
    [change] = store.edits.of_letter("0d3f1111")
    assert json.loads(change.before.body)[1] == {"currency": "EUX"}
    assert change.how == "edit"
    [act] = store.audit.find(act="edit").rows
    assert (act.why, act.detail["changed"]) == ("a typo", change.diff)


def test_the_file_that_is_edited_is_for_its_owner_only(run, store, editor, tmp_path):
    store.letters.save([letter("0d3f1111")])
    seen = tmp_path / "seen"
    editor(
        f"import os, stat; open({str(seen)!r}, 'w').write(oct(stat.S_IMODE(os.stat(path).st_mode)))"
    )
    run("edit", "0d3f")
    assert seen.read_text() == "0o600"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("", "Nothing was changed"),
        ("text = text.replace('EUX', 'EUX')", "Nothing was changed"),
        ("text = ''", "It is not JSON"),
        ("text = text[:-3]", "It is not JSON"),
        ("text = '{}'", "must be a JSON object"),
        ("text = text.replace('[', '{').replace(']', '}').replace('17', '')", "args are of type"),
    ],
)
def test_a_refused_edit_changes_nothing(run, store, editor, change, words):
    store.letters.save([letter("0d3f1111")])
    before = store.letters.get("0d3f1111")
    editor(change)
    done = run("edit", "0d3f")
    assert done.exit_code == 1
    assert words in done.stderr
    assert store.letters.get("0d3f1111") == before
    assert store.edits.of_letter("0d3f1111") == []


def test_an_editor_that_leaves_no_file_changes_nothing(run, store, editor):
    store.letters.save([letter("0d3f1111")])
    editor("import os; os.remove(path); sys.exit()")
    result = run("edit", "0d3f")
    assert result.exit_code == 1
    assert "Nothing was changed: the edited file cannot be read" in result.stderr
    assert store.letters.get("0d3f1111").envelope == letter("0d3f1111").envelope


def test_a_terminal_offers_to_edit_again(run, store, editor, monkeypatch):
    monkeypatch.setattr(module, "is_terminal", lambda _: True)
    store.letters.save([letter("0d3f1111")])
    # The first time it breaks the text; the second time it fixes it.
    editor("text = text.replace('!', '').replace('EUX', 'EUR') if '!' in text else text + '!'")
    done = run("edit", "0d3f", answer="y\n")
    assert done.exit_code == 0, done.output
    assert "It is not JSON" in done.stderr
    assert store.letters.get("0d3f1111").kwargs == {"currency": "EUR"}


def test_a_no_ends_the_editing(run, store, editor, monkeypatch):
    monkeypatch.setattr(module, "is_terminal", lambda _: True)
    store.letters.save([letter("0d3f1111")])
    editor("text = '{'")
    assert run("edit", "0d3f", answer="n\n").exit_code == 1


@pytest.mark.parametrize("editors", [{}, {"VISUAL": "", "EDITOR": " "}])
def test_without_a_terminal_and_an_editor_it_is_refused(run, store, monkeypatch, editors):
    monkeypatch.delenv("VISUAL", raising=False)
    monkeypatch.delenv("EDITOR", raising=False)
    for name, value in editors.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(module.click, "edit", lambda *_, **__: pytest.fail("an editor was started"))
    store.letters.save([letter("0d3f1111")])
    result = run("edit", "0d3f")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "no terminal to edit on, and neither VISUAL nor EDITOR is set" in result.stderr
    assert store.edits.of_letter("0d3f1111") == []


def test_on_a_terminal_an_editor_need_not_be_named(run, store, monkeypatch):
    monkeypatch.delenv("VISUAL", raising=False)
    monkeypatch.delenv("EDITOR", raising=False)
    monkeypatch.setattr(module, "is_terminal", lambda _: True)
    monkeypatch.setattr(module.click, "edit", lambda text, **_: text.replace("EUX", "EUR"))
    store.letters.save([letter("0d3f1111")])
    assert run("edit", "0d3f").exit_code == 0
    assert store.letters.get("0d3f1111").kwargs == {"currency": "EUR"}


def test_an_unknown_or_closed_letter_is_refused(run, store, editor):
    editor(CURRENCY)
    assert run("edit", "77").exit_code == 1
    store.letters.save([letter("0d3f1111")])
    discarded = run("discard", "0d3f", "--why", "test")
    assert discarded.exit_code == 0, discarded.output
    done = run("edit", "0d3f")
    assert done.exit_code == 1
    assert "is discarded; only the message of a dead letter" in done.stderr
    assert store.letters.get("0d3f1111").state is State.DISCARDED


def test_a_letter_that_changes_during_the_edit_is_refused(run, store, editor, queue, monkeypatch):
    store.letters.save([letter("0d3f1111")])
    editor(CURRENCY)
    monkeypatch.setattr(queue.store.edits, "save", lambda edit: False)
    done = run("edit", "0d3f")
    assert done.exit_code == 1
    assert "has just changed" in done.stderr
