"""``dlq`` without a command."""

import os
import shutil

import pytest
from support.factories import letter

from celery_dlq.model.operation import OperationState

CHARGE, MAIL = "9c1e0000deadbeef", "aaaa000000000000"


@pytest.fixture
def at_terminal(terminal):
    terminal.sit_down()


def shown(run):
    result = run()
    assert (result.exit_code, result.stderr) == (0, "")
    return result.stdout


def test_elsewhere_it_is_the_help(run, three):
    result = run()
    assert result.exit_code == run("--no-such-option").exit_code == 2
    assert "Look:" in result.output
    assert "open letters" not in result.output


@pytest.mark.usefixtures("at_terminal")
class TestOnATerminal:
    def test_it_shows_what_is_failing_and_the_next_commands(self, run, three):
        out = shown(run)
        for expected in (
            "3 open letters", "9c1e0000", "charge", "aaaa0000", "Groups that need a decision: 2 new.",
            f"celery dlq groups show {CHARGE}", f"celery dlq groups show {CHARGE} --format markdown",
            f"celery dlq list --group {CHARGE}", "celery dlq --help",
        ):  # fmt: skip
            assert expected in out
        assert out.index("9c1e0000") < out.index("aaaa0000"), "the worst comes first"
        assert "Commands:" not in out

    def test_redrives_that_are_under_way(self, run, three, held):
        made = held(1)
        out = shown(run)
        assert "running" in out
        assert f"celery dlq operations show {made.id}" in out

    def test_ended_redrives_are_not_there(self, run, store, three, operation):
        made = operation("77aa00000000", OperationState.PLANNED)
        store.operations.create(made)
        store.operations.move(made.id, OperationState.CANCELLED, who="bob", now=made.created_at)
        assert "77aa00000000" not in shown(run)

    def test_ignored_groups_are_left_out(self, run, three):
        run("groups", "ignore", "9c1e")
        out = shown(run)
        assert "9c1e0000" not in out
        assert f"celery dlq groups show {MAIL} --format markdown" in out
        run("groups", "ignore", "aaaa")
        assert "All groups are ignored or resolved." in shown(run)

    def test_an_empty_store(self, run, store):
        out = shown(run)
        assert "No group has open letters." in out
        assert "celery dlq doctor" in out

    @pytest.mark.parametrize(("lines", "groups"), [(24, 3), (30, 4), (100, 10)])
    def test_it_fits_a_screen(self, run, store, monkeypatch, lines, groups):
        store.letters.save(
            [letter(f"{number}", fingerprint=f"{number:08}{'0' * 8}") for number in range(20)]
        )
        size = os.terminal_size((120, lines))
        monkeypatch.setattr(shutil, "get_terminal_size", lambda *_, **__: size)
        out = shown(run)
        assert sum("bad currency" in line for line in out.splitlines()) == groups
        assert len(out.splitlines()) < lines

    def test_a_store_that_does_not_answer(self, run, app):
        app.conf.dlq_store_url = "postgresql://ann:s3cret@127.0.0.1:1/none"
        result = run()
        assert result.exit_code == 3
        assert "Look:" in result.stdout
        assert "cannot be used" in result.stderr
        assert "check dlq_store_url" in result.stderr
        assert "s3cret" not in result.output

    def test_a_setting_that_is_not_valid(self, run, app):
        app.conf.dlq_max_attempts = "many"
        result = run()
        assert result.exit_code == 1
        assert "Look:" in result.stdout
        assert "dlq_max_attempts" in result.stderr

    def test_hostile_letters_control_nothing(self, run, store):
        evil = "\x1b]0;owned\x07[red]\u202e\n"
        hostile = letter("a", message=evil, task=evil, exception_type=evil, fingerprint=evil)
        store.letters.save([hostile])
        assert not set(shown(run)) & set("\x1b\x07\u202e")

    def test_a_command_is_still_a_command(self, run, three):
        assert "Groups that need a decision" not in run("list").stdout
