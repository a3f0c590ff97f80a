"""Tracebacks as Python writes them, read back."""

import sys
import traceback

import pytest

from celery_dlq.classify.traceback_parser import Written, parse


def text_of(function):
    try:
        function()
    except BaseException as exc:
        return "".join(traceback.format_exception(exc))


def chained():
    try:
        try:
            {}["x"]
        except KeyError as exc:
            raise ConnectionRefusedError(111, "refused\nsecond line: of it") from exc
    except OSError:
        raise RuntimeError("outer")  # noqa: B904 - the test is about its context


CHAIN = Written(
    "RuntimeError",
    "outer",
    Written(
        "ConnectionRefusedError",
        "[Errno 111] refused\nsecond line: of it",
        Written("KeyError", "'x'"),
        is_cause=True,
    ),
)


def test_a_chain_with_a_message_of_two_lines():
    assert parse(text_of(chained)) == CHAIN


def test_the_prefix_of_a_log_is_ignored():
    log = (
        "[2026-11-21 12:00:00,000: ERROR/ForkPoolWorker-1] Task shop.charge[4711] raised: x\n"
        + text_of(lambda: 1 / 0)
        + "[2026-11-21 12:00:01,000: ERROR/ForkPoolWorker-1] "
        + text_of(chained)
    )
    assert parse(log) == CHAIN


def test_the_last_of_two_tracebacks_counts():
    found = parse(text_of(chained) + "\nsomething else\n" + text_of(lambda: 1 / 0))
    assert found == Written("ZeroDivisionError", "division by zero")


@pytest.mark.skipif(sys.version_info < (3, 11), reason="groups are of Python 3.11")
def test_a_group_with_a_chain_and_a_group_in_it():
    def fail():
        members = []
        for inner in (chained, lambda: 1 / 0):
            try:
                inner()
            except Exception as exc:
                members.append(exc)
        groups = ExceptionGroup("in", [ValueError("x"), members[1]])  # noqa: F821
        raise ExceptionGroup("several", [members[0], groups])  # noqa: F821

    found = parse(text_of(fail))
    assert (found.type_name, found.message) == ("ExceptionGroup", "several (2 sub-exceptions)")
    assert found.members[0] == CHAIN
    assert [member.type_name for member in found.members[1:]] == ["ValueError", "ZeroDivisionError"]


@pytest.mark.parametrize(
    ("line", "found"),
    [
        (
            "requests.exceptions.Timeout: too slow",
            Written("requests.exceptions.Timeout", "too slow"),
        ),
        ("KeyError", Written("KeyError", "")),
        ("tests.case.<locals>.Odd: a: b", Written("tests.case.<locals>.Odd", "a: b")),
        ("Traceback (most recent call last):\n  File x\nshop.Busy:\n", Written("shop.Busy", "")),
    ],
)
def test_short_forms(line, found):
    assert parse(line) == found


@pytest.mark.parametrize(
    "text",
    [
        "", "\n\n", "hello world", "hello", "error: it failed", "\x00", "{}", "Traceback (most",
        "Traceback (most recent call last):", "Traceback (most recent call last):\n  File x\n    y\n",
        "  + Exception Group Traceback (most recent call last):\n  |\n  +-+--- 1 ---\n",
    ],
)  # fmt: skip
def test_a_text_without_a_traceback_gives_nothing(text):
    assert parse(text) is None


def test_a_long_text_is_bounded():
    whole = text_of(lambda: 1 / 0)
    link = "\nThe above exception was the direct cause of the following exception:\n\n"
    found, depth = parse(link.join([whole] * 500) + "x" * 100_000), 0
    assert (found.type_name, len(found.message) < 10_000) == ("ZeroDivisionError", True)
    assert found.message.endswith("x")
    while found is not None:
        found, depth = found.before, depth + 1
    assert depth == 64
