import json
import pickle
import traceback

from billiard.einfo import ExceptionInfo
from celery.exceptions import Reject
from support.factories import attempt

from celery_dlq.base.redact import TRACEBACK_LIMIT
from celery_dlq.model.headers import ATTEMPTS_HEADER
from celery_dlq.worker.failure import (
    ATTEMPT_LIMIT,
    read_attempts,
    shed_frames,
    traceback_text,
    type_name,
    write_attempts,
)


def caught(function):
    try:
        function()
    except Exception as exc:
        return exc
    raise AssertionError("nothing was raised")


def caught_info(function):
    try:
        function()
    except Exception:
        return ExceptionInfo()
    raise AssertionError("nothing was raised")


def outer():
    inner()


def inner():
    raise ValueError("deep")


def test_a_types_name_is_dotted_and_builtins_are_bare():
    assert type_name(ValueError) == "ValueError"
    assert type_name(json.JSONDecodeError) == "json.decoder.JSONDecodeError"


def test_the_traceback_reads_as_pythons_does():
    text = traceback_text(caught(outer))
    assert text.startswith("Traceback (most recent call last):")
    assert text.index("in outer") < text.index("in inner")
    assert text.rstrip().endswith("ValueError: deep")


def test_causes_come_first_with_the_sentence_between():
    def both():
        try:
            inner()
        except ValueError as exc:
            raise KeyError("above") from exc

    text = traceback_text(caught(both))
    assert (
        text.index("ValueError: deep")
        < text.index("direct cause")
        < text.index("KeyError: 'above'")
    )


def test_cyclic_causes_end():
    exc = caught(inner)
    other = KeyError("other")
    exc.__cause__, other.__cause__ = other, exc
    assert traceback_text(exc).count("ValueError: deep") == 1


def test_hostile_and_huge_exceptions_have_a_bounded_traceback():
    class Rude(Exception):
        def __str__(self):
            raise RuntimeError

    def chain(depth):
        try:
            raise Rude if depth == 0 else ValueError("x" * 1_000_000)
        except Exception as exc:
            if depth == 12:
                raise
            exc.__traceback__ = exc.__traceback__
            return chain(depth + 1)

    text = traceback_text(caught(lambda: chain(0)))
    assert len(text) < TRACEBACK_LIMIT + 200


def test_the_frames_of_a_failure_stay_behind_and_its_text_travels():
    info = caught_info(outer)
    text = info.traceback
    shed_frames(info)
    copy = pickle.loads(pickle.dumps(info))
    assert copy.tb is None
    assert copy.traceback == text
    assert copy.exc_info[1:] == (copy.exception, None)


def test_the_frames_of_a_reject_are_shown_in_the_parent():
    info = caught_info(reject)
    before = traceback.format_tb(info.tb)
    shed_frames(info)
    assert traceback.format_tb(pickle.loads(pickle.dumps(info)).tb) == before


def reject():
    raise Reject("no use")


def test_attempts_travel_in_a_header():
    attempts = (attempt(1, delay_s=0.5), attempt(2, minutes=1))
    assert read_attempts({ATTEMPTS_HEADER: write_attempts(attempts)}) == attempts
    assert read_attempts(None) == read_attempts({}) == ()


def test_a_long_history_keeps_its_first_attempt_and_its_last():
    kept = read_attempts({ATTEMPTS_HEADER: write_attempts([attempt(n) for n in range(1, 101)])})
    assert len(kept) == ATTEMPT_LIMIT
    assert (kept[0].number, kept[1].number, kept[-1].number) == (1, 82, 100)


def test_a_broken_history_costs_nothing_else():
    for broken in ("{", "7", '[{"number": 1}]', 7, "[null]", [7]):
        assert read_attempts({ATTEMPTS_HEADER: broken}) == ()
