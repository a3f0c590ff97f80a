"""Which frames of a traceback are the user's own, wherever the worker ran."""

import pytest

from celery_dlq.flower.traceback import Piece, pieces


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
    ],
)
def test_a_frame_is_known_by_its_file(path, kind):
    assert pieces(frame(path)) == [Piece(frame(path), kind)]


def test_what_belongs_together_is_one_piece():
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
def test_what_is_no_traceback_is_text(text):
    assert {piece.kind for piece in pieces(text)} == {""}
