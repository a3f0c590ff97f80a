"""``dlq help``, which shows the documentation."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from celery_dlq.cli import _COMMANDS
from celery_dlq.cli.admin import help as module
from celery_dlq.cli.admin.help import as_text, find_pages, read_page, title_of

DOCS = Path(__file__).parents[4] / "docs"

TOPICS = {"repair-letters": Path("repair-letters.md"), "task-options": Path("task_options.md")}


def test_every_page_has_a_topic_and_a_title():
    pages = find_pages()
    assert {path.resolve() for path in pages.values()} == {
        path for path in DOCS.rglob("*.md") if path.stem not in module._LEFT_OUT
    }
    assert all(title_of(read_page(path)) for path in pages.values())


def test_without_a_topic_all_are_listed(run):
    result = run("help")
    assert result.exit_code == 0
    listed = [line.split()[0] for line in result.stdout.splitlines()[1:]]
    assert listed == [*find_pages()]
    assert "settings" in listed


@pytest.mark.parametrize("topic", [*find_pages()])
def test_each_page_is_shown_without_links_to_files(run, topic):
    result = run("help", topic)
    assert (result.exit_code, result.stderr) == (0, "")
    prose = re.sub(r"^```.*?^```", "", result.stdout, flags=re.DOTALL | re.MULTILINE)
    assert re.findall(r"\]\([^)]*\.md[^)]*\)|<!--|!\[", prose) == []
    named = re.findall(r"celery dlq help ([\w-]+)", result.stdout)
    assert set(named) <= set(find_pages())


def test_on_a_terminal_a_page_is_drawn_and_paged(run, terminal, monkeypatch):
    shown = []
    monkeypatch.setattr(module.click, "echo_via_pager", lambda text, color: shown.append(text))
    terminal.sit_down(width=80)
    assert run("help", "repair-letters").exit_code == 0
    [text] = shown
    plain = re.sub(r"\x1b\[[\d;]*m", "", text)
    assert max(map(len, plain.splitlines())) <= 80
    assert title_of(read_page(find_pages()["repair-letters"])) in plain


@pytest.mark.parametrize("name", list(_COMMANDS))
def test_each_command_has_a_page(run, name):
    if name != "help":
        assert run("help", name).exit_code == 0


def test_an_unknown_topic_gets_suggestions(run):
    result = run("help", "reapir-letters")
    assert (result.exit_code, result.stdout) == (2, "")
    said = " ".join(result.stderr.split())
    assert (
        "'reapir-letters' is not a topic of the documentation; did you mean 'repair-letters'?"
        in said
    )


def test_an_installation_without_pages_says_so(run, monkeypatch, tmp_path):
    monkeypatch.setattr(module, "_PLACES", (tmp_path,))
    result = run("help", "settings")
    assert result.exit_code == 1
    assert "The documentation is missing from this installation" in result.stderr


def test_the_pages_of_the_wheel_come_before_those_of_a_checkout(monkeypatch, tmp_path):
    (tmp_path / "howto").mkdir()
    (tmp_path / "howto" / "x_y.md").write_text("# `X` and Y\n")
    monkeypatch.setattr(module, "_PLACES", (tmp_path, *module._PLACES))
    assert find_pages() == {"x-y": tmp_path / "howto" / "x_y.md"}
    assert title_of(read_page(find_pages()["x-y"])) == "X and Y"


@pytest.mark.parametrize(
    ("page", "text"),
    [
        ("See [repairs](../howto/repair-letters.md#set).", "See repairs (`celery dlq help repair-letters`)."),
        ("[options](task_options.md)", "options (`celery dlq help task-options`)"),
        ("[below](#fields) and [a file](../../monitoring/rules.yml)", "below and a file"),
        ("[Celery](https://docs.celeryq.dev)", "Celery (https://docs.celeryq.dev)"),
        ("<!-- begin: x -->\ntext\n<!-- end: x -->", "text"),
        ("![groups](../images/flower-groups.png)\n\ntext", "text"),
        ("```python\nx = [a](b.md)\n```\n[below](#x)", "```python\nx = [a](b.md)\n```\nbelow"),
    ],
)  # fmt: skip
def test_links_become_text(page, text):
    assert as_text(page, TOPICS) == text
