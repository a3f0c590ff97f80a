"""The frames of the user's own code in a traceback, on any machine."""

import pytest

from celery_dlq.view.traceback import Piece, own_traceback, pieces

LIBRARY = (
    '  File "/venv/lib/python3.11/site-packages/requests/api.py", line 59, in request\n    call()'
)
OWN = '  File "/srv/shop/pay.py", line 7, in charge\n    return bank.pay()\n           ^^^^^^^^^^'
HEADER = "Traceback (most recent call last):"


def lines(*parts):
    return "\n".join(parts)


def frame(path, rest="\n    call()"):
    return f'  File "{path}", line 3, in run{rest}'


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/srv/shop/tasks.py", "app"),
        ("tasks.py", "app"),
        ("/home/ann/lib/python/shop.py", "app"),
        ("C:\\shop\\tasks.py", "app"),
        ("/srv/shop/.venv/lib/python3.13/site-packages/requests/api.py", "library"),
        ("/usr/lib/python3/dist-packages/requests/api.py", "library"),
        ("/usr/local/lib/python3.11/json/decoder.py", "library"),
        ("/opt/python/lib/python3.13t/json/decoder.py", "library"),
        ("C:\\Python312\\Lib\\json\\decoder.py", "library"),
        ("C:\\venv\\Lib\\site-packages\\requests\\api.py", "library"),
        ("<frozen importlib._bootstrap>", "library"),
        ("<string>", "library"),
        ("/srv/checkout/celery_dlq/worker/task.py", "library"),
        ("/srv/celery_dlq/celery_dlq/worker/task.py", "library"),
        ("/srv/celery_dlq/shop/tasks.py", "app"),
    ],
)
def test_the_path_of_a_frame_decides_its_kind(path, kind):
    assert pieces(frame(path)) == [Piece(frame(path), kind)]


def test_the_lines_of_a_frame_are_one_piece():
    own = frame(
        "/srv/shop/a.py", "\n    call()\n    ^^^^^^\n  [Previous line repeated 96 more times]"
    )
    text = "\n".join(
        [
            "Traceback (most recent call last):",
            own,
            "ValueError: first line",
            "    second line, which is no code",
            "",
            "The above exception was the direct cause of the following exception:",
            "",
            "Traceback (most recent call last):",
            frame("/usr/lib/python3.11/json/decoder.py"),
            "KeyError: 'x'",
        ]
    )
    found = pieces(text)
    assert [piece.kind for piece in found] == ["", "app", "", "library", ""]
    assert found[1].text == own
    assert "\n".join(piece.text for piece in found) == text


@pytest.mark.parametrize("text", ["x", "\n\n", '  File "', '  File "a", line x', "[" * 100])
def test_text_that_is_not_a_traceback_stays_text(text):
    assert {piece.kind for piece in pieces(text)} == {""}


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
