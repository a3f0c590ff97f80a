"""The frames of the user's own code in a traceback, on any machine."""

import pytest

from celery_dlq.flower.words import Piece, pieces


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
