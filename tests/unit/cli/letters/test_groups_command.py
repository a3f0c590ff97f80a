"""``dlq groups``: the list, and decisions about groups."""

import shlex

import pytest
from support.factories import T0, attempt, letter

from celery_dlq.cli import session
from celery_dlq.model.group import GroupStatus

CHARGE, MAIL = "9c1e0000deadbeef", "aaaa000000000000"

TRACEBACK = """Traceback (most recent call last):
  File "/srv/venv/lib/python3.12/site-packages/celery/app/trace.py", line 453, in trace_task
    R = retval = fun(*args, **kwargs)
  File "/srv/shop/billing.py", line 12, in charge
    raise ValueError("bad currency")
ValueError: bad currency
"""


@pytest.fixture(autouse=True)
def ada(monkeypatch):
    monkeypatch.setattr(session.getpass, "getuser", lambda: "ada")


@pytest.fixture
def charge(store, three):
    """Reads the group of the two letters about ``charge``."""

    def read():
        return store.groups.get(CHARGE, now=T0)

    return read


def listed(read, *args):
    return [row["fingerprint"] for row in read("groups", *args)]


def act(run, *args):
    result = run("groups", *args)
    assert (result.exit_code, result.stderr) == (0, "")
    return result.stdout.strip()


def test_the_list_shows_marks_and_decisions(run, store, three):
    act(run, "resolve", "9c1e")
    lines = run("groups").stdout.splitlines()
    assert lines[0].split()[3:8] == ["TASK", "EXCEPTION", "VERDICT", "RULE", "STATUS"]
    assert lines[1].split()[3:8] == [
        "shop.charge",
        "ValueError",
        "terminal",
        "python.bug",
        "resolved",
    ]
    assert lines[2].split()[7] == "new"


def test_a_wide_terminal_draws_the_last_day(run, three, terminal):
    terminal.sit_down(width=160)
    out = run("groups").stdout
    assert "LAST 24 H" in out
    assert "▁▁█" in out
    terminal.sit_down(width=100)
    assert "LAST 24 H" not in run("groups").stdout


def test_the_json_fields_are_the_api(run, read, three):
    act(run, "ignore", "9c1e", "--until", "2h", "--until-count", "5")
    act(run, "assign", "9c1e", "bob")
    (found,) = read("groups", "--status", "ignored")
    assert found == {
        "fingerprint": CHARGE, "task": "shop.charge", "exception_type": "ValueError",
        "message": "bad currency", "open_count": 2, "letter_count": 2, "total_count": 2,
        "first_seen_at": "2026-11-21T12:10:00+00:00", "last_seen_at": "2026-11-21T12:20:00+00:00",
        "status": "ignored", "status_at": "2026-11-21T13:00:00+00:00", "status_by": "ada",
        "ignored_until": "2026-11-21T15:00:00+00:00", "ignored_rate": None, "ignored_total": 7,
        "resolved_in": "", "regressed_at": None, "owner": "bob", "note": "", "marks": [], "tickets": [],
        "route": "", "route_owner": "", "verdict": "terminal", "rule": "python.bug", "namespace": "",
    }  # fmt: skip


def test_filters(run, read, store, three):
    act(run, "ignore", "9c1e")
    act(run, "assign", "aaaa", "bob")
    assert listed(read) == [MAIL]
    assert listed(read, "--status", "ignored") == [CHARGE]
    assert listed(read, "--status", "ignored", "--status", "open") == [CHARGE, MAIL]
    assert listed(read, "--owner", "bob") == [MAIL]
    assert listed(read, "--owner", "ann") == []
    assert listed(read, "--mark", "new") == [MAIL]
    assert listed(read, "--mark", "regressed") == []
    act(run, "resolve", "9c1e")
    store.letters.save([letter("late", attempt(minutes=90))])
    assert listed(read, "--mark", "regressed") == [CHARGE]


def test_a_group_without_open_letters_is_listed_by_its_status(run, read, three):
    act(run, "ignore", "9c1e")
    assert run("discard", "--group", "9c1e", "--why", "x", "--yes").exit_code == 0
    assert listed(read) == [MAIL]
    assert listed(read, "--status", "ignored") == [CHARGE]


def test_the_list_comes_page_by_page(run, read, three):
    first = run("groups", "--limit", "1", "--format", "jsonl")
    assert len(first.stdout.splitlines()) == 1
    assert CHARGE in first.stdout
    assert first.stderr.startswith("For the next page, add: --after ")
    next_page = shlex.split(first.stderr.partition("add: ")[2])
    assert listed(read, "--limit", "1", *next_page) == [MAIL]
    assert run("groups", "--limit", "1", *next_page).stderr == ""
    assert run("groups", "--limit", "2").stderr == ""


class TestActs:
    def test_ignore_without_a_limit(self, run, charge):
        assert act(run, "ignore", "9c1e") == (
            f"Ignored group {CHARGE}. This ends when it is reopened."
        )
        assert (charge().status, charge().status_by) == (GroupStatus.IGNORED, "ada")

    def test_ignore_until_the_first_limit(self, run, charge):
        said = act(
            run, "ignore", "9c1e",
            "--until", "2026-11-22T08:00:00Z", "--until-rate", "5/m", "--until-count", "1",
        )  # fmt: skip
        assert said == (
            f"Ignored group {CHARGE}. This ends at 2026-11-22T08:00:00+00:00, or at 300 failures within "
            "an hour, or after 1 more failure."
        )
        assert (charge().ignored_rate, charge().ignored_total) == (300, 3)

    @pytest.mark.parametrize(
        ("rate", "letters"), [("100/h", 100), ("7/h", 7), ("0.5/h", 1), ("2", 7_200)]
    )
    def test_a_rate_is_letters_within_an_hour(self, run, charge, rate, letters):
        act(run, "ignore", "9c1e", "--until-rate", rate)
        assert charge().ignored_rate == letters

    def test_resolve(self, run, charge):
        said = act(run, "resolve", "9c1e", "--release", "1.5")
        assert (
            said == f"Resolved group {CHARGE}; it still has 2 open letters to redrive or discard."
        )
        assert (charge().status, charge().resolved_in) == (GroupStatus.RESOLVED, "1.5")

    def test_reopen(self, run, charge):
        act(run, "resolve", "9c1e")
        assert act(run, "reopen", "9c1e") == f"Group {CHARGE} is open."
        assert charge().status is GroupStatus.OPEN

    def test_note(self, run, charge):
        assert act(run, "note", "9c1e", " see ticket 7 ") == f"Set the note of group {CHARGE}."
        assert charge().note == "see ticket 7"
        assert act(run, "note", "9c1e", "") == f"Removed the note of group {CHARGE}."
        assert charge().note == ""

    def test_assign(self, run, charge):
        assert act(run, "assign", "9c1e", "bob") == f"Group {CHARGE} is assigned to bob."
        assert charge().owner == "bob"
        assert act(run, "assign", "9c1e", "") == f"Group {CHARGE} has no owner."
        assert charge().owner == ""

    def test_each_act_is_audited(self, run, read, charge):
        act(run, "ignore", "9c1e", "--until-count", "3")
        act(run, "note", "9c1e", "known")
        rows = read("audit")
        assert [(row["act"], row["who"], row["count"]) for row in rows] == [
            ("note", "ada", 2),
            ("ignore", "ada", 2),
        ]
        assert rows[1]["detail"] == {"group": CHARGE, "count": 3}


class TestShow:
    def test_one_in_full(self, run, three):
        act(run, "note", "9c1e", "a note\nof two lines")
        act(run, "resolve", "9c1e", "--release", "1.5")
        out = run("groups", "show", "9c1e").stdout
        for expected in (
            CHARGE, "resolved", "Fixed in    1.5", "By          ada", "of two lines", "bad currency",
            f"See its letters: celery dlq list --group {CHARGE}",
        ):  # fmt: skip
            assert expected in out

    def test_why_its_newest_letter_died(self, run, store, three):
        store.letters.save([letter("new", attempt(minutes=40), traceback=TRACEBACK)])
        out = run("groups", "show", "9c1e").stdout
        for expected in (
            "Verdict     terminal", "Rule        python.bug", "Traceback of the newest letter",
            'shop/billing.py", line 12', "Arguments of the newest letter", '{"currency": "EUX"}',
        ):  # fmt: skip
            assert expected in out
        assert "celery/app/trace.py" not in out

    def test_the_end_of_ignoring_is_shown(self, run, three):
        act(run, "ignore", "9c1e", "--until-count", "3")
        assert "Ends        after 3 more failures" in run("groups", "show", "9c1e").stdout

    def test_as_json_with_its_trend(self, read, three):
        found = read("groups", "show", "9c1e")
        assert found["marks"] == ["new"]
        assert found["arrivals_per_hour"] == [0] * 22 + [2, 0]

    def test_drawn(self, run, three, terminal):
        terminal.sit_down()
        assert "▁█▁" in run("groups", "show", "9c1e").stdout


class TestNonsense:
    @pytest.mark.parametrize(
        ("args", "message"),
        [
            (["ignore", "9c1e", "--until", "yesterday"], "is not a time"),
            (["ignore", "9c1e", "--until", "2020-01-01"], "is in the past"),
            (["ignore", "9c1e", "--until", "2026-11-21T13:00:00Z"], "is in the past"),
            (["ignore", "9c1e", "--until-rate", "0/h"], "is not a rate"),
            (["ignore", "9c1e", "--until-rate", "many"], "is not a rate"),
            (["ignore", "9c1e", "--until-rate", "1000000/s"], "is more than 1,000,000,000 letters"),
            (["ignore", "9c1e", "--until-count", "0"], "0 is not in the range"),
            (["ignore"], "Missing argument 'GROUP'"),
            (["note", "9c1e"], "Missing argument 'TEXT'"),
            (["--status", "gone"], "gone"),
            (["--mark", "old"], "old"),
            (["--owner", " "], "'--owner': it is empty"),
            (["--after", "nonsense"], "That is not a cursor of groups"),
            (["--queue", "mail"], "--queue"),
            (
                ["--task", "charge", "ignore", "9c1e"],
                "Got unexpected extra arguments (ignore 9c1e)",
            ),
            (["mute", "9c1e"], "mute"),
        ],
    )
    def test_is_a_usage_error_and_changes_nothing(self, run, charge, args, message):
        result = run("groups", *args)
        assert result.exit_code == 2
        assert message in result.stderr
        assert charge().status is GroupStatus.OPEN

    @pytest.mark.parametrize("command", ["show", "ignore", "resolve", "reopen"])
    def test_an_unknown_group(self, run, three, command):
        result = run("groups", command, "77")
        assert result.exit_code == 1
        assert result.stderr == (
            "Error: No group has a fingerprint that begins with '77'; see: celery dlq groups\n"
        )

    def test_an_ambiguous_prefix(self, run, store, three):
        store.letters.save([letter("c1", fingerprint="9c1f000000000000")])
        result = run("groups", "ignore", "9c1")
        assert result.exit_code == 1
        assert f"More than one group begins with '9c1': {CHARGE}, 9c1f000000000000" in result.stderr

    def test_an_empty_name(self, run, three):
        assert run("groups", "reopen", "").exit_code == 2

    def test_a_note_that_is_too_long(self, run, charge):
        result = run("groups", "note", "9c1e", "x" * 4_001)
        assert result.exit_code == 1
        assert (
            "The note has 4,001 characters; use at most 4,000. Nothing was changed."
            in result.stderr
        )
        assert charge().note == ""

    def test_hostile_notes_stay_in_their_place(self, run, store, three, terminal):
        act(run, "note", "9c1e", "\x1b[2J[bold]\u202ex")
        act(run, "assign", "9c1e", "[red]\x1b]0;x\x07")
        for width in (None, 160):
            if width:
                terminal.sit_down(width=width)
            for words in (["groups"], ["groups", "show", "9c1e"]):
                assert not set(run(*words).stdout) & {"\x1b", "\u202e", "\x07"}
