"""list, groups, stats, explain."""

import csv
import io
import json
import re
import textwrap

import pytest
from support.factories import T0, attempt, envelope, letter

from celery_dlq import Rule
from celery_dlq.cli.letters import inspect
from celery_dlq.model.letter import Explanation
from celery_dlq.model.states import Verdict
from celery_dlq.store.base import TypeCount
from celery_dlq.store.letters import pages

API_FIELDS = [
    "task_id", "task", "state", "reason", "verdict", "rule", "exception_type", "message",
    "fingerprint", "queue", "attempts", "first_failed_at", "last_failed_at", "worker", "release",
    "redrive_count", "due_at", "tags", "route", "owner", "args", "kwargs", "unreadable",
    "namespace",
]  # fmt: skip


def ids(rows):
    return [row["task_id"] for row in rows]


def test_list_in_a_pipe_is_plain_and_whole(run, three):
    lines = run("list").stdout.splitlines()
    assert lines[0].split()[:3] == ["ID", "TASK", "EXCEPTION"]
    assert [line.split()[0] for line in lines[1:]] == ["77e1", "0d3f2222-bbbb", "0d3f1111-aaaa"]
    assert lines[1].endswith("2026-11-21T12:30:00Z")
    assert "requests.exceptions.Timeout" in lines[1]


def test_a_long_message_is_found_by_grep_in_a_pipe(run, store):
    store.letters.save(
        [
            letter("a", message="m" * 5_000 + " end"),
            letter("b", message="short", fingerprint="b" * 16),
        ]
    )
    assert "m" * 5_000 + " end" in run("list").stdout
    assert "m" * 200 in run("groups").stdout


@pytest.mark.parametrize(
    ("option", "given", "meant"),
    [
        ("--exception", "VlaueError", "did you mean 'ValueError'?"),
        ("--queue", "ordres", "'ordres' is not the queue of a letter; did you mean 'orders'?"),
        ("--release", "9.9", "'9.9' is not the release of a letter; there is 1.0"),
    ],
)
def test_a_filter_that_no_letter_ever_matched_says_which_names_there_are(
    run, store, option, given, meant
):
    store.letters.save([letter("a", release="1.0", envelope=envelope("a", queue="orders"))])
    found = run("list", option, given)
    assert found.exit_code == 0
    assert meant in " ".join(found.stderr.split())
    assert run("list", "--exception", "ValueError").stderr == ""


def test_closed_letters_that_also_match_are_counted(run, store):
    store.letters.save([letter("a"), letter("b"), letter("c", task="shop.mail")])
    run("discard", "a", "--why", "x")
    assert run("list").stderr == ""
    assert run("list", "--task", "charge").stderr == (
        "1 closed letter also matches; add: --state discarded\n"
    )
    run("discard", "b", "--why", "x")
    assert "2 closed letters also match; add:" in run("list", "--task", "charge").stderr
    assert run("list", "--task", "charge", "--state", "dead").stderr == ""
    assert run("list", "--task", "charge", "--format", "json").stderr == ""


class TestASearchThatRunsOutOfTime:
    @pytest.fixture(autouse=True)
    def out_of_time(self, store, monkeypatch):
        monkeypatch.setattr(pages, "STEP", 2)
        monkeypatch.setattr(inspect, "_PATIENCE_S", 0)
        store.letters.save([letter(f"new {n}", attempt(minutes=50 + n)) for n in range(4)])
        theirs = {"message": "declined", "fingerprint": "c" * 16}
        store.letters.save([letter("old", attempt(minutes=5), **theirs)])

    def test_says_how_far_it_came_and_what_an_index_knows(self, run):
        found = run("list", "--search", "declined")
        assert found.stdout.startswith(
            "No matching letters found so far.\n\n"
            "Further back; there may be more letters before these and between them:\n"
        )
        assert found.stdout.splitlines()[-1].split()[0] == "old"
        assert "Searched back to 2026-11-21T12:52:00+00:00; older letters may" in found.stderr
        cursor = found.stderr.split("--after ")[1].strip()
        following = run("list", "--search", "declined", "--after", cursor)
        assert "Searched back to 2026-11-21T12:50:00+00:00" in following.stderr

    def test_with_no_letter_in_an_index_says_only_how_far_it_came(self, run):
        found = run("list", "--search", "refunded")
        assert found.stdout == "No matching letters found so far.\n"
        assert "Searched back to" in found.stderr

    def test_gives_a_program_all_letters(self, read):
        assert ids(read("list", "--search", "declined")) == ["old"]


def test_list_on_a_terminal_is_short_and_shows_ages(run, three, terminal):
    terminal.sit_down(width=100)
    out = run("list").stdout
    assert "0d3f1111 " in out
    assert "30m ago" in out
    assert " charge " in out
    assert "requests.exceptions" not in out


def test_the_json_fields_are_the_api(read, three):
    rows = read("list")
    assert ids(rows) == ["77e1", "0d3f2222-bbbb", "0d3f1111-aaaa"]
    assert all(list(row) == API_FIELDS for row in rows)
    assert rows[2] == {
        **rows[2],
        "task": "shop.charge",
        "state": "dead",
        "reason": "terminal",
        "verdict": "terminal",
        "rule": "python.bug",
        "attempts": 2,
        "first_failed_at": "2026-11-21T12:00:00+00:00",
        "last_failed_at": "2026-11-21T12:10:00+00:00",
        "queue": "celery",
        "redrive_count": 0,
        "due_at": None,
        "tags": [],
        "args": [17],
        "kwargs": {"currency": "EUX"},
    }


def test_list_as_lines_and_as_csv(run, three):
    lines = run("list", "--format", "jsonl").stdout.splitlines()
    assert ids(map(json.loads, lines)) == ["77e1", "0d3f2222-bbbb", "0d3f1111-aaaa"]
    rows = list(csv.DictReader(io.StringIO(run("list", "--format", "csv").stdout)))
    assert list(rows[0]) == API_FIELDS
    assert rows[0]["kwargs"] == '{"currency":"EUX"}'


@pytest.mark.parametrize(
    ("filters", "found"),
    [
        (["--task", "shop.mail"], ["77e1"]),
        (["--task", "mail"], ["77e1"]),
        (["--exception", "Timeout"], ["77e1"]),
        (["--queue", "mail"], ["77e1"]),
        (["--group", "aaaa"], ["77e1"]),
        (["--search", "TOO slow"], ["77e1"]),
        (["--since", "35m"], ["77e1"]),
        (["--since", "2026-11-21T12:20:00Z", "--until", "35m"], ["0d3f2222-bbbb"]),
        (["--worker", "celery@h", "--limit", "1"], ["77e1"]),
        (["--reason", "TERMINAL", "--task", "mail"], ["77e1"]),
        (["--reason", "timeout"], []),
        (["--state", "discarded", "--state", "resolved"], []),
        (["--state", "dead", "--queue", "mail"], ["77e1"]),
    ],
)
def test_filters(read, three, filters, found):
    assert ids(read("list", *filters)) == found


@pytest.mark.parametrize(
    ("filters", "found"),
    [
        (["--release", "2.0"], ["b"]),
        (["--release", "2"], []),
        (["--tag", "money"], ["b"]),
        (["--tag", "mon"], []),
        (["--verdict", "TRANSIENT"], ["b"]),
        (["--verdict", "terminal"], ["c", "a"]),
        (["--rule", "http."], ["b"]),
    ],
)
def test_filters_on_the_failure_and_the_canvas(read, store, filters, found):
    judged = Explanation(verdict=Verdict.TRANSIENT, rule="http.status")
    other = {"release": "2.0", "tags": ("money",), "root_id": "a", "explanation": judged}
    names = {"a": {}, "b": other, "c": {}}
    store.letters.save(
        [letter(name, attempt(minutes=at), **names[name]) for at, name in enumerate("abc")]
    )
    assert ids(read("list", *filters)) == found


def test_a_misspelt_verdict_is_refused(run, store):
    result = run("list", "--verdict", "transent")
    assert result.exit_code == 2
    assert "'transent' is not a verdict; did you mean 'transient'?" in result.stderr


def test_pages_follow_each_other(run, three):
    first = run("list", "--limit", "2", "--format", "jsonl")
    assert first.stderr.startswith("For the next page, add: --after ")
    cursor = first.stderr.split()[-1]
    second = run("list", "--limit", "2", "--format", "jsonl", "--after", cursor)
    assert second.stderr == ""
    found = [json.loads(line)["task_id"] for line in (first.stdout + second.stdout).splitlines()]
    assert found == ["77e1", "0d3f2222-bbbb", "0d3f1111-aaaa"]


def test_quiet_leaves_out_the_remark_about_more(run, three):
    assert run("list", "--limit", "1", quiet=True).stderr == ""


@pytest.mark.parametrize(
    ("form", "out"),
    [("table", "No dead letters match.\n"), ("json", "[]\n"), ("jsonl", ""), ("csv", "")],
)
def test_no_letters_are_no_error(run, store, form, out):
    result = run("list", "--format", form)
    assert (result.exit_code, result.stdout) == (0, out)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--since", "1h", "--until", "2h"], "is not before"),
        (["--since", "yesterday"], "is not a time; write 90m"),
        (["--state", "gone"], "gone"),
        (["--limit", "0"], "0 is not in the range"),
        (["--task", ""], "'--task': it is empty"),
        (["--after", "nonsense"], "start again without --after"),
        (["--format", "xml"], "xml"),
        (["--colour"], "--colour"),
    ],
)
def test_an_invalid_command_line_is_a_usage_error(run, store, args, message):
    result = run("list", *args)
    assert result.exit_code == 2
    assert message in result.stderr


def test_hostile_letters_stay_in_their_cells(run, store, terminal):
    evil = "\x1b[2J[bold]\u202e\nsecond line"
    store.letters.save([letter("evil", exception_type="[red]E", message=evil, task="t\x1b[0m")])
    for width in (None, 60, 200):
        if width:
            terminal.sit_down(width=width)
        out = run("list").stdout
        assert not set(out) & {"\x1b", "\u202e", "\r"}
        assert len(out.splitlines()) == (3 if width else 2)
        assert "[red]E" in out


def test_no_color_draws_without_colours(run, three, terminal):
    terminal.sit_down()
    assert "\x1b[" in run("list", color=True).stdout
    assert "\x1b[" not in run("list", color=True, no_color=True).stdout


def test_groups(run, read, three, terminal):
    assert [(row["fingerprint"], row["open_count"]) for row in read("groups")] == [
        ("9c1e0000deadbeef", 2),
        ("aaaa000000000000", 1),
    ]
    assert read("groups", "--task", "mail")[0]["last_seen_at"] == "2026-11-21T12:30:00+00:00"
    plain = run("groups").stdout.splitlines()
    assert plain[1].split()[:4] == ["9c1e0000deadbeef", "2", "2", "shop.charge"]
    terminal.sit_down()
    assert "9c1e0000 " in run("groups").stdout


def test_no_groups(run, store):
    assert run("groups").stdout == "No groups match.\n"


def test_groups_take_only_the_filters_they_can_answer(run, store):
    result = run("groups", "--queue", "mail")
    assert result.exit_code == 2
    assert "--queue" in result.stderr


def test_stats(run, read, three, terminal):
    found = read("stats")
    assert found["depth"] == 3
    assert found["by_task"] == {"shop.charge": 2, "shop.mail": 1}
    assert found["by_reason"] == {"terminal": 3}
    assert found["by_state"]["dead"] == 3
    assert len(found["arrivals_per_hour"]) == 24
    assert sum(found["arrivals_per_hour"]) == 3
    assert found["oldest_open_at"] == "2026-11-21T12:10:00+00:00"
    assert found["ages"][1] == {"up_to_s": 3600.0, "count": 3}
    assert found["ages"][-1] == {"up_to_s": None, "count": 0}
    plain = run("stats").stdout
    assert "3 open letters" in plain
    assert "under 1h" in plain
    assert "█" not in plain
    terminal.sit_down()
    assert "▁▁█" in run("stats").stdout


def test_stats_on_a_terminal_add_up_rare_values(run, store, terminal):
    store.letters.save(
        [letter(f"id-{n}", task=f"task-{n:02}", fingerprint=f"{n:016}") for n in range(20)]
    )
    assert "task-19" in run("stats").stdout
    terminal.sit_down()
    out = run("stats").stdout
    assert "task-14" in out
    assert "task-15" not in out
    assert re.search(r"… 5 more +5\b", out)


def test_stats_of_an_empty_store(run, store):
    out = run("stats").stdout
    assert "0 open letters" in out
    assert "TASK" not in out


def test_explain_a_letter(run, read, store):
    decided = Explanation(
        verdict=Verdict.TRANSIENT, rule="http.status", evidence="status=503", path="A <- B"
    )
    store.letters.save([letter("0d3f", explanation=decided, exception_type="OSError")])
    found = read("explain", "0d")
    assert found["rule"] == "http.status"
    assert found["verdict"] == "transient"
    assert found["evidence"] == "status=503"
    assert found["today"]["type_name"] == "OSError"
    out = run("explain", "0d3f").stdout
    assert "A <- B" in out
    assert "By today's rules" in out


@pytest.mark.parametrize(
    ("exception_type", "evidence", "setting"),
    [
        ("bank.Busy", "bank.Busy carries code=17", 'dlq_transient = ["bank.Busy"]'),
        ("f.<locals>.Busy", "no rule", 'dlq_transient = ["f.<locals>.Busy"]'),
        (
            "RuntimeError",
            "no rule; RuntimeError carries name=x, status=503",
            'dlq_rules = [Rule("RuntimeError", "transient", status=503)]',
        ),
        (
            "RuntimeError",
            "no rule; bank.Busy carries status=503",
            'dlq_rules = [Rule("RuntimeError", "transient", matching=r"its message")]',
        ),
        (
            "Exception",
            "Exception carries code=429",
            'dlq_rules = [Rule("Exception", "transient", status=429)]',
        ),
        ("Exception", "no rule", 'dlq_rules = [Rule("Exception", "transient", when=is_passing)]'),
    ],
)
def test_explain_a_letter_that_no_rule_decided_says_how_to_change_it(
    run, store, exception_type, evidence, setting
):
    decided = Explanation(
        verdict=Verdict.TERMINAL, rule="default", evidence=evidence, path=exception_type
    )
    store.letters.save([letter("0d3f", explanation=decided, exception_type=exception_type)])
    [line] = [line for line in run("explain", "0d3f").stdout.splitlines() if "To change it" in line]
    assert line.split("To change it")[1].strip() == setting
    values = {"Rule": Rule, "is_passing": bool}
    exec(setting, values)  # it is valid, and a rule accepts it
    assert values.keys() & {"dlq_transient", "dlq_rules"}


def test_explain_a_letter_that_a_name_decided_names_the_class_of_that_name(run, store):
    decided = Explanation(
        verdict=Verdict.TRANSIENT, rule="class.name", evidence="x", path="Exception <- bank.Timeout"
    )
    store.letters.save([letter("0d3f", explanation=decided, exception_type="Exception")])
    assert 'dlq_terminal = ["bank.Timeout"]' in run("explain", "0d3f").stdout


@pytest.mark.parametrize(
    ("rule", "exception_type"), [("http.status", "bank.Busy"), ("default", 'x"], "bank.Busy')]
)
def test_explain_proposes_nothing_if_a_rule_decided_or_the_type_is_not_a_name(
    run, store, rule, exception_type
):
    decided = Explanation(verdict=Verdict.TERMINAL, rule=rule, evidence="x", path=exception_type)
    store.letters.save([letter("0d3f", explanation=decided, exception_type=exception_type)])
    out = run("explain", "0d3f").stdout
    assert exception_type in out
    assert "To change it" not in out


def test_explain_a_letter_shows_the_rule_of_each_attempt(run, read, store):
    runs = attempt(1, rule="os.network", evidence="type=OSError"), attempt(2, minutes=1)
    store.letters.save([letter("0d3f", *runs)])
    tried = read("explain", "0d3f")["attempts"]
    assert [(item["number"], item["rule"], item["evidence"]) for item in tried] == [
        (1, "os.network", "type=OSError"),
        (2, "python.bug", "type=ValueError"),
    ]
    assert "type=OSError" in run("explain", "0d3f").stdout


@pytest.fixture
def unknown(store):
    """Letters about which no rule decided, and what is known of their redrives."""

    def ended(*, of_busy, of_closed):
        types = [
            TypeCount(
                exception_type=name, rule="default", letters=7, open=2, task_id="0d3f",
                evidence="no rule for it", last_failed_at=T0, succeeded=ended[0], failed=ended[1],
            )
            for name, ended in (("bank.Busy", of_busy), ("bank.Closed", of_closed), ("Exception", (9, 0)))
        ]  # fmt: skip
        store.counts.by_type = lambda rules, *, limit: tuple(types)

    return ended


def test_explain_types_that_no_rule_knows(run, read, unknown):
    unknown(of_busy=(3, 1), of_closed=(0, 2))
    out = run("explain", "--unknown").stdout
    settings = out[out.index("dlq_transient") : out.index("\n\nCheck")]
    given = {}
    exec(textwrap.dedent(f"  {settings}"), given)
    assert (given["dlq_transient"], given["dlq_terminal"]) == (["bank.Busy"], ["bank.Closed"])
    assert "3 of 4 redrives succeeded" in out
    found = read("explain", "--unknown")
    assert [(one["exception_type"], one["setting"]) for one in found] == [
        ("bank.Busy", "dlq_transient"),
        ("bank.Closed", "dlq_terminal"),
        ("Exception", ""),
    ]


def test_explain_types_that_no_rule_knows_and_that_were_not_redriven(run, unknown):
    unknown(of_busy=(0, 0), of_closed=(0, 0))
    out = run("explain", "--unknown").stdout
    assert "None of their redrives has ended yet" in out
    assert "dlq_transient = [" not in out


def test_explain_nothing_unknown(run, three):
    assert run("explain", "--unknown").stdout == "A rule decided about every stored letter.\n"


@pytest.mark.parametrize("given", [[], ["ValueError", "--unknown"]])
def test_explain_wants_one_thing(run, app, given):
    result = run("explain", *given)
    assert result.exit_code == 2
    assert (
        "Give an ID, a GROUP, an EXCEPTION, a TASK or a FILE; or --unknown alone." in result.stderr
    )


TRACEBACK = """Traceback (most recent call last):
  File "shop.py", line 1, in charge
ConnectionResetError: [Errno 104] Connection reset by peer

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File "shop.py", line 2, in charge
shop_of_text.Busy: bank
"""


def test_explain_a_traceback_in_a_file(run, read, app, tmp_path):
    path = tmp_path / "log.txt"
    path.write_text(TRACEBACK)
    found = read("explain", path)
    assert (found["exception_type"], found["message"]) == ("shop_of_text.Busy", "bank")
    assert (found["verdict"], found["rule"]) == ("transient", "os.network")
    assert found["path"] == "shop_of_text.Busy <- ConnectionResetError"
    assert any("base classes" in item for item in found["unknown"])
    out = run("explain", path).stdout
    assert "transient, unless:" in out
    assert "Unknown" in out


def test_explain_a_traceback_from_standard_input_by_the_apps_rules(run, app):
    app.conf.dlq_terminal = ["shop_of_text.Busy"]
    result = run("explain", "-", "--format", "json", answer=TRACEBACK)
    found = json.loads(result.stdout)
    assert (found["verdict"], found["rule"], found["unknown"]) == ("terminal", "dlq_terminal", [])


@pytest.mark.parametrize(
    "content", [b"", b"no traceback\n", b"\x00\xff\xfe", b"Traceback (most recent"]
)
def test_explain_a_file_without_a_traceback(run, app, tmp_path, content):
    path = tmp_path / "log"
    path.write_bytes(content)
    result = run("explain", path)
    assert result.exit_code == 1
    assert "has no Python traceback" in result.stderr
    assert "most recent call last" in result.stderr


def test_explain_imports_nothing_that_a_letter_names(read, store):
    store.letters.save(
        [letter("0d3f", exception_type="antigravity.Error"), letter("1", exception_type="os.path")]
    )
    assert read("explain", "0d3f")["today"] is None
    assert read("explain", "1")["today"] is None


def test_explain_a_type(run, read, app):
    app.conf.dlq_rules = [Rule("requests.exceptions.Timeout", "terminal", name="our own")]
    found = read("explain", "requests.exceptions.Timeout")
    assert found["verdict"] == "terminal"
    assert found["rules"] == ["our own"]
    assert "Verdict" in run("explain", "ValueError").stdout


def test_explain_an_id_that_looks_like_a_name(read, store):
    store.letters.save([letter("Order17")])
    assert read("explain", "Order")["task_id"] == "Order17"


def test_explain_a_group_by_its_newest_letter(run, read, three):
    assert read("explain", "aaaa")["task_id"] == "77e1"
    assert run("explain", "aaab").exit_code == 1


def test_explain_an_exception_as_the_list_names_it(read, three):
    found = read("explain", "Timeout")
    assert (found["task_id"], found["exception_type"]) == ("77e1", "requests.exceptions.Timeout")


def test_explain_a_name_that_nothing_has(run, three):
    result = run("explain", "frobnicate")
    assert (result.exit_code, result.stdout) == (1, "")
    assert (
        "'frobnicate' is not a letter, a group, an exception or a task; there are" in result.stderr
    )
    assert "did you mean 'requests.exceptions.Timeout'?" in run("explain", "Timeot").stderr


def test_explain_something_that_is_not_an_exception(run, app):
    result = run("explain", "os.path")
    assert result.exit_code == 1
    assert "not an exception class" in result.stderr


@pytest.mark.parametrize("form", ["jsonl", "csv"])
def test_explain_in_the_other_formats(run, three, form):
    assert (
        len(run("explain", "77e1", "--format", form).stdout.splitlines())
        == {"jsonl": 1, "csv": 2}[form]
    )
