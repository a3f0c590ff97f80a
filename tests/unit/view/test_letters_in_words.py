"""The meanings of reasons, and a traceback with the user's own frames."""

import pytest
from support.factories import letter

from celery_dlq.model.states import Reason
from celery_dlq.view.letters import MEANINGS, argument_values, named, named_arguments, own_traceback

LIBRARY = (
    '  File "/venv/lib/python3.11/site-packages/requests/api.py", line 59, in request\n    call()'
)
OWN = '  File "/srv/shop/pay.py", line 7, in charge\n    return bank.pay()\n           ^^^^^^^^^^'
HEADER = "Traceback (most recent call last):"


def lines(*parts):
    return "\n".join(parts)


def test_each_reason_has_a_meaning():
    assert set(MEANINGS) == set(Reason)


def test_frames_of_libraries_become_one_line_between_own_ones():
    text = lines(HEADER, LIBRARY, OWN, LIBRARY, LIBRARY, OWN, LIBRARY, "ValueError: no", "")
    assert own_traceback(text) == lines(
        HEADER, "  … 1 frame of libraries", OWN, "  … 2 frames of libraries", OWN,
        "  … 1 frame of libraries", "ValueError: no",
    )  # fmt: skip


def test_without_own_frames_the_innermost_stay():
    text = lines(HEADER, *[LIBRARY] * 5, "OSError")
    assert own_traceback(text) == lines(
        HEADER, "  … 2 frames of libraries", *[LIBRARY] * 3, "OSError"
    )


def test_each_exception_of_a_chain_is_looked_at_by_itself():
    link = lines("", "The above exception was the direct cause of the following exception:", "")
    text = lines(HEADER, LIBRARY, "OSError: down", link, HEADER, OWN, LIBRARY, "ValueError: no")
    assert own_traceback(text) == lines(
        HEADER, LIBRARY, "OSError: down", link, HEADER, OWN, "  … 1 frame of libraries",
        "ValueError: no",
    )  # fmt: skip


def test_repetitions_belong_to_their_frame():
    again = "  [Previous line repeated 90 more times]"
    text = lines(HEADER, OWN, again, LIBRARY, again, "RecursionError")
    assert own_traceback(text) == lines(
        HEADER, OWN, again, "  … 1 frame of libraries", "RecursionError"
    )


def test_a_text_without_frames_is_unchanged():
    assert own_traceback("Worker exited\nwith signal 9") == "Worker exited\nwith signal 9"
    assert own_traceback("") == ""


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("0", "order_id"),
        ("1.street", "address.street"),
        ("2", "2"),
        ("currency", "currency"),
        ("9" * 5_000, "9" * 5_000),
        ("\u0660", "\u0660"),
    ],
)
def test_a_position_becomes_the_name_of_its_parameter(path, expected):
    assert named(path, ["order_id", "address"]) == expected


def test_a_keyword_argument_with_a_number_as_its_name_is_not_renamed():
    found = letter(args=[], kwargs={"0": "x"})
    assert argument_values(found, ["order_id"], 9) == [("0", "x")]


@pytest.mark.parametrize(
    ("args", "kwargs", "expected"),
    [
        ([17, [1]], {"a": 2}, [("order_id", 17), ("args[1]", [1]), ("a", 2)]),
        (None, None, []),
        ("[1, 2", {}, [("args", "[1, 2"), ("kwargs", {})]),
    ],
)
def test_arguments_by_name(args, kwargs, expected):
    assert named_arguments(letter(args=args, kwargs=kwargs), ["order_id"]) == expected
