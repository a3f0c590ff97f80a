"""The brief of ``dlq groups show``."""

import json

import pytest
from support.briefs import HOSTILE, structure_of
from support.factories import T0, attempt, letter

from celery_dlq.cli import session
from celery_dlq.model.letter import Explanation, Outcome
from celery_dlq.model.operation import OperationState
from celery_dlq.model.states import Verdict
from celery_dlq.store.base import Filter

CHARGE = "9c1e0000deadbeef"

TRACEBACK = (
    "Traceback (most recent call last):\n"
    '  File "/venv/lib/python3.11/site-packages/celery/app/trace.py", line 453, in trace_task\n'
    "    R = retval = fun(*args, **kwargs)\n"
    '  File "/srv/shop/pay.py", line 7, in charge\n'
    "    raise ValueError('bad currency')\n"
    "ValueError: bad currency\n"
)


@pytest.fixture(autouse=True)
def ada(monkeypatch):
    monkeypatch.setattr(session.getpass, "getuser", lambda: "ada")


@pytest.fixture
def many(store):
    """Ten letters of one cause; all but one have the same tenant. Two runs each."""
    store.letters.save(
        [
            letter(
                f"aaaa{number}",
                attempt(1, delay_s=0.4, minutes=number),
                attempt(2, minutes=number + 20),
                traceback=TRACEBACK,
                kwargs={"tenant": "acme" if number else "other", "order": number, "password": "p4ss"},
                release="1.4.2" if number < 4 else "1.4.3",
                tags=("billing",),
                explanation=Explanation(
                    verdict=Verdict.TERMINAL, rule="python.bug", evidence="type=ValueError"
                ),
            )
            for number in range(10)
        ]
    )  # fmt: skip


def text_of(run, *args):
    result = run("groups", "show", "--format", "markdown", *args)
    assert (result.exit_code, result.stderr) == (0, "")
    return result.stdout


def test_it_says_what_a_reader_needs(run, many):
    run("groups", "assign", CHARGE, "ann")
    run("groups", "note", CHARGE, "see\nticket 7")
    text = text_of(run, "9c1e")
    for expected in (
        f"- Group: `{CHARGE}`", "- Task: `shop.charge`", "- Exception: `ValueError`", "- Status: open, new",
        "- Letters: 10 open, 10 in all; 10 dead", "- Owner: `ann`", "see\nticket 7",
        "Failures: 10; 10 in the last 24 hours, 0 in the 24 hours before",
        '  … 1 frame of libraries\n  File "/srv/shop/pay.py", line 7, in charge',
        "- Reason: terminal, verdict: terminal", "- Rule: `python.bug`", "- Evidence: `type=ValueError`",
        "- The newest letter: 2 attempts; the waits between them were 0.4s", "- 2 attempts: in 100% (10)",
        "counted over all 10 open letters", "- `0=17` in 100% (10)", "- `tenant=acme` in 90% (9)",
        '"tenant": "acme", "order": 9, "password": "[redacted]"',
        "- Release: `1.4.3` in 60% (6), `1.4.2` in 40% (4)", "- Tag: `billing` in 100% (10)",
        "No redrive after this failure",
        f"celery dlq groups show {CHARGE}", "celery dlq show aaaa9",
        f"celery dlq redrive --group {CHARGE} --dry-run", f"celery dlq groups ignore {CHARGE} --until 3d",
    ):  # fmt: skip
        assert expected in text
    assert "p4ss" not in text
    assert "order=" not in text, "no two letters have the same"


def test_its_redrives_and_how_they_ended(run, store, many, operation):
    wanted = Filter(group="9c1e", until=T0.replace(year=2027))
    made = operation("77aa00000000", OperationState.PLANNED, planned=10, wanted=wanted)
    store.operations.create(made)
    running = store.operations.move(made.id, OperationState.RUNNING, who="ada", now=T0)
    held = store.claims.take(running, token="t", lease_until=T0, limit=4, now=T0)
    sent = {one.task_id: "" for one in held.letters}
    store.claims.confirm(made.id, "t", sent, now=T0, is_all=True)
    ran = [Outcome(task_id=one, redrive=1, succeeded_at=T0, worker="w") for one in [*sent][:3]]
    store.letters.record_outcomes(ran)
    text = text_of(run, "9c1e")
    assert (
        "4 sent, the last on 2026-11-21T12:00:00+00:00; 3 succeeded (100% of those that ended)"
        in text
    )
    assert "- 77aa00000000 on 2026-11-21T12:00:00+00:00, running: 4 sent, 3 succeeded" in text
    assert "6 dead" in text
    assert "3 resolved" in text
    assert json.loads(text_of(run, "9c1e", "--format", "brief"))["redrives"]["success_rate"] == 1.0


def test_shares_are_counted_over_the_newest_letters(run, store, many, monkeypatch):
    monkeypatch.setattr("celery_dlq.view.groups.SAMPLE", 4)
    text = text_of(run, "9c1e")
    assert "counted over the newest 4 of 10 open letters" in text
    assert "- `tenant=acme` in 100% (4)" in text


def test_as_json(run, many):
    found = json.loads(text_of(run, "9c1e", "--format", "brief"))
    assert (found["open_count"], found["sample"], found["verdict"]) == (10, 10, "terminal")
    assert found["attempts"] == {"newest": 2, "waits_s": [0.4], "letters": {"2": 10}}
    outside = found["from_outside"]
    assert outside["shared"][1] == {"name": "tenant", "value": "acme", "letters": 9}
    assert outside["arguments"][0]["task_id"] == "aaaa9"
    assert "/srv/shop/pay.py" in outside["traceback"]


def test_on_an_output_without_unicode(run, store, monkeypatch):
    store.letters.save([letter("a", message="漢 🐰")])
    monkeypatch.setattr("celery_dlq.cli.letters.groups.speaks_unicode", lambda: False)
    out = text_of(run, "9c1e", "--format", "brief")
    assert out.isascii()
    assert json.loads(out)["from_outside"]["message"] == "漢 🐰"


def test_an_id_that_is_not_one_is_in_no_command(run, store):
    store.letters.save([letter("x'; rm -rf ~ `id`\n# Now", fingerprint="run this")])
    text = text_of(run, "run")
    commands = text.partition("```sh\n")[2].partition("\n```")[0]
    assert commands.splitlines() == [
        "celery dlq groups show GROUP",
        "celery dlq redrive --group GROUP --dry-run",
        "celery dlq groups ignore GROUP --until 3d",
    ]


def test_hostile_letters_stay_in_their_place(run, store):
    names = dict.fromkeys(
        ("task", "exception_type", "message", "traceback", "worker", "release"), HOSTILE
    )
    hostile = letter(
        HOSTILE, fingerprint="9c1e", args=[HOSTILE], kwargs={HOSTILE: HOSTILE}, tags=(HOSTILE,), **names
    )  # fmt: skip
    store.letters.save([hostile, hostile.with_(task_id="second")])
    for act in (["note", "9c1e", HOSTILE[:4_000]], ["assign", "9c1e", HOSTILE[:200]]):
        run("groups", *act)
    text = text_of(run, "9c1e")
    structure = structure_of(text)
    titles = [
        structure[place + 2][1] for place, part in enumerate(structure) if part[0] == "heading_open"
    ]
    assert titles == [
        "A group of dead letters in brief", "Group", "Cause", "Attempts", "Arguments", "Found in", "Redrives",
        "Next commands",
    ]  # fmt: skip
    for shown in (text, text_of(run, "9c1e", "--format", "brief")):
        assert not set(shown) & set("\x00\x1b\x07\r\x85\u202e\u200b\u2028")


def test_a_group_whose_letters_were_deleted(run, store, many):
    assert run("delete", "--open", "--group", "9c1e", "--why", "x", "--yes").exit_code == 0
    result = run("groups", "show", "--format", "markdown", "9c1e")
    assert result.exit_code in (0, 1)
    assert (
        result.exit_code == 1 or "The store has no letter of this group any more." in result.stdout
    )


@pytest.mark.parametrize(
    ("args", "status", "message"),
    [
        (["77"], 1, "No group has a fingerprint that begins with '77'; see: celery dlq groups"),
        ([""], 2, "it is empty"),
        ([], 2, "Missing argument 'GROUP'"),
        (["9c1e", "--format", "tabel"], 2, "'tabel' is not a format"),
    ],
)
def test_what_is_not_a_group_or_a_format(run, many, args, status, message):
    result = run("groups", "show", "--format", "markdown", *args)
    assert result.exit_code == status
    assert message in result.stderr
