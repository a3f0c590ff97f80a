import base64
import csv
import io
import json
import re
from dataclasses import replace
from datetime import datetime, timezone

import pytest
from support.factories import T0, attempt, bomb, envelope, letter, parking

from celery_dlq.model.letter import Explanation, Outcome
from celery_dlq.model.states import Reason, Verdict
from celery_dlq.store.base import Edit


@pytest.fixture
def whole(store):
    """A letter with a value in every field."""
    store.letters.save(
        [
            letter(
                "0d3f1111-aaaa",
                attempt(1, delay_s=0.4, verdict=Verdict.TRANSIENT, rule="http.status"),
                attempt(2, minutes=10, exception_type="requests.HTTPError", message="503"),
                reason=Reason.EXHAUSTED,
                explanation=Explanation(
                    verdict=Verdict.TRANSIENT,
                    rule="http.status",
                    evidence="status=503 from response.status_code; 2 of 2 attempts used",
                    path="shop.Failed <- requests.HTTPError",
                ),
                traceback="Traceback (most recent call last):\n  File 'x'\nrequests.HTTPError: 503\n",
                canvas="chord",
                root_id="root-1",
                parent_id="parent-1",
                group_id="group-1",
                tags=("billing", "eu"),
                envelope=envelope(
                    "0d3f1111-aaaa", headers={"id": "0d3f", "eta": "2026-11-22T00:00:00"}
                ),
            )
        ]
    )
    return "0d3f1111-aaaa"


def test_it_shows_one_letter_only(run, whole):
    result = run("show", whole, "0d3f")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "Got unexpected extra argument (0d3f)" in result.stderr


def test_attempts_are_numbered_through_redrives(run, store):
    runs = attempt(1), attempt(2, minutes=1), attempt(1, redrive=1, minutes=30)
    store.letters.save([letter("again", *runs, redrive_count=1)])
    lines = run("show", "again").stdout.partition("Attempts\n")[2].splitlines()
    assert [line.split()[:2] for line in lines[1:4]] == [["1", "0"], ["2", "0"], ["3", "1"]]


def test_it_starts_with_the_cause_and_ends_with_the_next_step(run, whole):
    out = run("show", "0d3f").stdout
    titles = re.findall(r"^(\w[\w ]*)$", out, flags=re.M)
    assert titles == [
        "Why it died",
        "Error",
        "Attempts",
        "Arguments",
        "Message",
        "Traceback",
        "History",
    ]
    assert out.splitlines()[-1] == f"Next: celery dlq redrive {whole}"


FACTS = (
    "exhausted: its attempts or its retry window were used up", "http.status", "status=503 from",
    "shop.Failed <- requests.HTTPError", "0.4s", '{"currency": "EUX"}', "celery", "chord", "root-1",
    "parent-1", "group-1", "billing, eu", "2026-11-22T00:00:00", "  requests.HTTPError: 503", "1.4.2",
    "31 bytes of application/json", "9c1e0000deadbeef",
)  # fmt: skip


@pytest.mark.parametrize("width", [None, 80, 140])
def test_it_shows_every_fact(run, whole, terminal, width):
    if width:
        terminal.sit_down(width=width)
    out = run("show", whole).stdout
    assert [fact for fact in FACTS if fact not in out] == []


def test_json_is_the_whole_letter(read, whole):
    found = read("show", "0d3f", "--body")
    assert found["task_id"] == whole
    assert found["attempts"] == 2
    assert [item["number"] for item in found["attempt_history"]] == [1, 2]
    assert found["attempt_history"][0]["delay_s"] == 0.4
    assert found["attempt_history"][0]["verdict"] == "transient"
    assert found["attempt_history"][1]["failed_at"] == "2026-11-21T12:10:00+00:00"
    assert found["explanation"]["path"] == "shop.Failed <- requests.HTTPError"
    assert found["headers"]["eta"] == "2026-11-22T00:00:00"
    assert found["properties"]["delivery_mode"] == 2
    assert json.loads(base64.b64decode(found["body"])) == [[17], {"currency": "EUX"}, {}]
    assert found["closed_at"] is None


def test_a_letter_leads_to_its_trace(run, read, app, store):
    trace_id = "0af7651916cd43dd8448eb211c80319c"
    headers = {"id": "traced", "traceparent": f"00-{trace_id}-b7ad6b7169203331-01"}
    store.letters.save([letter("traced", envelope=envelope(headers=headers)), letter("plain")])
    assert trace_id in run("show", "traced").stdout
    assert "Trace page" not in run("show", "traced").stdout
    assert (read("show", "traced")["trace_id"], read("show", "traced")["trace_url"]) == (
        trace_id,
        "",
    )
    app.conf.dlq_trace_url = "https://jaeger.example/{org}/trace/{trace_id}"
    del app.dead_letter_queue
    address = f"https://jaeger.example/{{org}}/trace/{trace_id}"
    assert address in run("show", "traced").stdout
    assert read("show", "traced")["trace_url"] == address
    assert (read("show", "plain")["trace_id"], read("show", "plain")["trace_url"]) == (None, "")


def test_the_list_has_the_same_values_in_the_same_fields(read, whole):
    listed, whole_record = read("list")[0], read("show", whole)
    assert listed.items() <= whole_record.items()


def test_the_other_formats(run, whole):
    assert json.loads(run("show", whole, "--format", "jsonl").stdout)["task_id"] == whole
    (row,) = csv.DictReader(io.StringIO(run("show", whole, "--format", "csv").stdout))
    assert json.loads(row["attempt_history"])[1]["message"] == "503"


def test_headers_that_are_not_json_are_printed(read, store):
    odd = envelope(headers={"raw": b"\xff\x00", "at": T0})
    store.letters.save([letter("0d3f", envelope=odd)])
    assert set(read("show", "0d3f")["headers"]) == {"raw", "at"}


def next_line(run, task_id):
    return run("show", task_id).stdout.splitlines()[-1]


def test_the_next_step_depends_on_the_state(run, store, queue):
    store.letters.save([letter("a"), letter("b", reason=Reason.EXHAUSTED)])
    assert next_line(run, "a") == "Next: fix the cause, then: celery dlq redrive a"
    run("discard", "a", "--why", "known")
    assert (
        next_line(run, "a")
        == "Next: nothing, it is discarded; to reopen it: celery dlq discard --undo a"
    )
    assert "Closed because" in run("show", "a").stdout
    store.letters.record_outcomes([Outcome(task_id="b", redrive=0, succeeded_at=T0, worker="w")])
    assert next_line(run, "b") == "Next: nothing, it succeeded; see the others: celery dlq list"


def test_the_next_step_of_a_claimed_or_sent_letter(run, store, held):
    store.letters.save([letter("a")])
    other = held(1)
    assert next_line(run, "a") == "Next: a redrive holds it; check again: celery dlq show a"
    store.claims.confirm(other.id, "other", {"a": ""}, now=T0)
    assert next_line(run, "a").endswith("if none arrives: celery dlq redrive a --state redriven")


def test_redrives_and_changes_are_shown(run, read, store, held):
    before = letter("a")
    store.letters.save([before])
    store.edits.save(an_edit(before))
    other = held(1)
    diff = "- kwargs.currency = 'EURO'\n+ kwargs.currency = 'EUR'"
    store.claims.confirm(other.id, "other", {"a": diff}, now=T0)
    out = run("show", "a").stdout
    assert re.search(r"^Redrives\n#  OPERATION +STATE", out, re.MULTILINE)
    assert re.search(r"^1  77aa00000000  sent", out, re.MULTILINE)
    assert (
        "Changed by ada on 2026-11-21T12:00:00+00:00 (edit)\n  - args.0 = 1\n  + args.0 = 2" in out
    )
    assert f"Changed in redrive 1 only (operation 77aa00000000)\n  {diff.splitlines()[0]}" in out
    found = read("show", "a")
    assert (found["redrives"][0]["state"], found["redrives"][0]["change"]) == ("sent", diff)
    assert found["changes"][0] == {
        "at": "2026-11-21T12:00:00+00:00", "who": "ada", "how": "edit",
        "diff": "- args.0 = 1\n+ args.0 = 2",
    }  # fmt: skip


def an_edit(before):
    return Edit(
        task_id=before.task_id, before=before.envelope,
        after=replace(before.envelope, body=b"[[2], {}, {}]"), args=[2], kwargs={},
        diff="- args.0 = 1\n+ args.0 = 2", who="ada", at=T0,
    )  # fmt: skip


def test_a_hostile_letter_shows_as_text(run, store, terminal):
    evil = "\x1b]0;owned\x07[link=x]\u202e"
    store.letters.save(
        [
            letter(
                "0d3f", attempt(message=evil, worker=evil), message=evil, traceback=f"a\n{evil}\n",
                args=[evil], kwargs={evil: evil}, tags=(evil,), worker=evil, release=evil, canvas="chord",
                envelope=envelope(headers={"origin": evil, "eta": evil}, queue=evil),
            )
        ]
    )  # fmt: skip
    for width in (None, 50, 200):
        if width:
            terminal.sit_down(width=width)
        assert not set(run("show", "0d3f").stdout) & {"\x1b", "\x07", "\u202e"}


def test_an_id_may_be_any_unique_prefix(run, three):
    assert run("show", "7").exit_code == 0
    assert run("show", "0d3f2").exit_code == 0


def test_an_ambiguous_prefix_lists_the_candidates(run, three):
    result = run("show", "0d3f")
    assert result.exit_code == 1
    assert result.stderr == (
        "Error: More than one id begins with '0d3f': 0d3f1111-aaaa, 0d3f2222-bbbb; "
        "give more characters.\n"
    )


def test_at_most_ten_candidates_are_listed(run, store):
    store.letters.save([letter(f"ab{number:02}") for number in range(12)])
    stderr = run("show", "ab").stderr
    assert "ab09 and more;" in stderr
    assert "ab10" not in stderr


def test_a_whole_id_wins_over_longer_ones(run, store):
    store.letters.save([letter("order"), letter("order-1"), letter("order-2")])
    assert "order\n" in run("show", "order").stdout


@pytest.mark.parametrize("task_id", ["zzz", "%", "_", "0D3F1"])
def test_an_unknown_id_points_to_the_list(run, three, task_id):
    result = run("show", task_id)
    assert result.exit_code == 1
    assert result.stderr.startswith("Error: No dead letter has an id that begins with")
    assert result.stderr.endswith("see: celery dlq list\n")


def test_a_deleted_letter_says_by_whom(run, store):
    store.letters.save([letter("gone")])
    assert run("delete", "gone", "--open", "--why", "test data", "--yes").exit_code == 0
    result = run("show", "gone")
    assert result.exit_code == 1
    assert result.stderr.startswith("Error: The letter 'gone' was deleted by ")
    assert result.stderr.endswith(": test data.\n")


def test_a_message_that_a_breaker_has_parked_is_shown_with_its_reason(run, read, store):
    why = Explanation(
        verdict=Verdict.TRANSIENT, rule="breaker.open", evidence="the circuit of charge is open"
    )
    waiting = parking("0d3f-waits", 90, attempts=(), explanation=why, traceback="")
    store.parked.park([waiting], now=datetime.now(timezone.utc))
    out = run("show", "0d3f").stdout
    assert "breaker.open" in out
    assert "the circuit of charge is open" in out
    assert read("show", "0d3f", "--format", "json")["attempt_history"] == []


def test_a_body_that_is_too_large_to_unpack_is_reported_as_unreadable(run, store):
    store.letters.save([bomb(300_000_000, "bomb")])
    said = "its body unpacks to more than 8 MiB, so it was not opened"
    assert re.search(rf"Unreadable +{said}", run("show", "bomb").stdout)
    record = json.loads(run("show", "bomb", "--body", "--format", "json").stdout)
    assert record["body_unread"] == said
    assert base64.b64decode(record["body"]) == store.letters.get("bomb").envelope.body
