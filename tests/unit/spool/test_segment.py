import json
from datetime import datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.factories import T0, attempt, envelope, letter

from celery_dlq.model.letter import FORMAT, Explanation, Outcome
from celery_dlq.model.states import Reason, State, Verdict
from celery_dlq.spool.segment import decode, encode, find_record

LETTER = letter("a")
OUTCOME = Outcome(task_id="a", redrive=1, succeeded_at=T0, worker="w")

# To JSON, two halves of a character that follow each other are that character.
texts = st.text(st.characters(exclude_categories=[])).filter(
    lambda text: text == text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")
)
moments = st.datetimes(timezones=st.just(timezone.utc))
scalars = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | texts | st.binary()
    | st.datetimes() | st.datetimes(timezones=st.just(timezone(timedelta(hours=5.5))))
    | st.decimals(allow_nan=False)
)  # fmt: skip
values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(texts | st.integers() | st.binary(), inner, max_size=4)
        | st.dictionaries(st.sampled_from(["$bytes", "$table", "$float"]), inner, max_size=2)
    ),
    max_leaves=10,
)
tables = st.dictionaries(texts, values, max_size=4)
envelopes = st.builds(
    envelope, body=st.binary(), content_type=texts, content_encoding=texts, headers=tables,
    properties=tables, exchange=texts, routing_key=texts, queue=texts,
)  # fmt: skip
attempts = st.builds(
    attempt, number=st.integers(), redrive=st.integers(), failed_at=moments, message=texts,
    exception_type=texts, verdict=st.sampled_from(Verdict), rule=texts,
    delay_s=st.none() | st.floats(allow_nan=False), worker=texts, pid=st.none() | st.integers(),
)  # fmt: skip
letters = st.builds(
    lambda task_id, runs, **fields: letter(task_id, *runs, **fields),
    texts, st.lists(attempts, min_size=1, max_size=3), task=texts, message=texts,
    traceback=texts, args=values, kwargs=values, envelope=envelopes, tags=st.lists(texts).map(tuple),
    reason=st.sampled_from(Reason), state=st.sampled_from(State), root_id=st.none() | texts,
    explanation=st.builds(Explanation, verdict=st.sampled_from(Verdict), rule=texts, evidence=texts),
    closed_at=st.none() | moments,
)  # fmt: skip


@given(letters)
def test_any_letter_comes_back_as_it_was(made):
    line = encode(made)
    assert decode(line) == made
    assert line.isascii()
    assert line.count(b"\n") == 1


def test_an_argument_may_be_a_time_that_no_zone_has():
    made = letter("a", kwargs=datetime.min)  # noqa: DTZ901
    assert decode(encode(made)) == made


@given(letters, texts)
def test_any_letter_is_found_in_a_log(made, before):
    line = encode(made).decode().strip()
    assert find_record(f"{before.replace(chr(123), '')} CRITICAL {line} trailing") == made
    assert find_record(json.dumps({"at": 1, "log": [f"CRITICAL {line}\n"]})) == made


def test_numbers_that_json_does_not_know_come_back():
    made = letter(envelope=envelope(headers={"x": [float("inf"), float("nan")]}))
    whole, nan = decode(encode(made)).envelope.headers["x"]
    assert whole == float("inf")
    assert nan != nan


def test_a_bottomless_header_costs_no_letter():
    deep: dict = {}
    for _ in range(100_000):
        deep = {"a": deep}
    assert decode(encode(letter("a", envelope=envelope(headers={"deep": deep})))).task_id == "a"


def test_an_outcome_comes_back_as_it_was():
    assert decode(encode(OUTCOME)) == OUTCOME


def test_the_first_format_is_still_read():
    """A line as 0.1.0 wrote it before headers were kept without loss."""
    data = json.loads(encode(LETTER))
    data["format"] = 1
    data["envelope"]["headers"] = {"id": "a", "when": "2026-11-21 12:00:00"}
    made = decode(json.dumps(data).encode())
    assert made.envelope.headers == {"id": "a", "when": "2026-11-21 12:00:00"}
    assert made.with_(envelope=LETTER.envelope) == LETTER


@pytest.mark.parametrize(
    "change",
    [
        {"format": FORMAT + 1}, {"kind": "brake"}, {"reason": "bored"}, {"state": "asleep"},
        {"mood": "grim"},
    ],
)  # fmt: skip
def test_a_record_that_this_release_does_not_know_is_refused(change):
    line = json.dumps({**json.loads(encode(LETTER)), **change})
    with pytest.raises(ValueError):
        decode(line.encode())
    with pytest.raises(ValueError):
        find_record(f"CRITICAL {line}")


@pytest.mark.parametrize(
    "line",
    [b"", b"{}", b"[]", b"null", b"3", b'{"kind": "x"}', b"\xff", b'{"kind": "letter"}',
     encode(LETTER)[:-40], encode(LETTER)[5:], b"\x00" * 100],
)  # fmt: skip
def test_an_incomplete_record_is_torn(line):
    with pytest.raises(ValueError):
        decode(line)


def test_a_log_line_without_a_record():
    assert find_record("") is None
    assert find_record("INFO all is well {}") is None
    assert find_record('{"log": "INFO all is well"}') is None


def test_a_record_that_is_cut_off_in_the_log_is_noticed():
    line = encode(LETTER).decode()
    with pytest.raises(ValueError):
        find_record("CRITICAL " + line[:-40])
    with pytest.raises(ValueError):
        find_record(json.dumps({"log": line[:-40]}))
