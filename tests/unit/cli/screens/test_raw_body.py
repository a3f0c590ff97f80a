"""An unreadable body on a terminal, in a pipe, and as data."""

import base64

import pytest
from support.factories import envelope, letter

from celery_dlq.model.states import Reason
from celery_dlq.view.letters import SHOWN_LIMIT, shown_body


@pytest.mark.parametrize(
    ("body", "shown"),
    [
        (b"{", "{"),
        ("größer\n€".encode(), "größer\n€"),
        (b"one\x1b[31m stray escape", "one\\x1b[31m stray escape"),
        (b"\x80\x04N.", "00000000  80 04 4e 2e                                       ..N."),
        (bytes(range(17)),
         "00000000  00 01 02 03 04 05 06 07  08 09 0a 0b 0c 0d 0e 0f  ................\n"
         "00000010  10                                                ."),
    ],
)  # fmt: skip
def test_a_body_is_shown_as_text_or_as_a_dump(body, shown):
    assert shown_body(body, raw=True) == shown


def test_a_long_body_is_cut_and_shows_its_size():
    shown = shown_body(b"\xff" * 50_000_000, raw=True).splitlines()
    assert len(shown) == SHOWN_LIMIT // 16 + 1
    assert shown[-1] == "… the first 1,024 of 50,000,000 bytes"


def test_a_cut_through_a_character_is_still_text():
    text = "€" * 1_000
    shown = shown_body(text.encode())
    assert shown.startswith("€" * (SHOWN_LIMIT // 3))
    assert shown.endswith("… the first 1,024 of 3,000 bytes")


@pytest.fixture
def unread(store):
    made = envelope("0d3f", body=b"\x80\x04\x1b]0;owned\x07", content_type="application/x-pickle")
    store.letters.save(
        [letter("0d3f", reason=Reason.MALFORMED, args=None, kwargs=None, envelope=made)]
    )


@pytest.mark.parametrize("width", [None, 80])
def test_show_prints_an_unreadable_body(run, unread, terminal, width):
    if width:
        terminal.sit_down(width=width)
    assert "12 bytes that are not text" in run("show", "0d3f").stdout
    out = run("show", "0d3f", "--body").stdout
    assert "80 04 1b 5d 30 3b 6f 77  6e 65 64 07" in out
    assert not set(out) & {"\x1b", "\x07"}
    assert "12 bytes of application/x-pickle" in out
    assert "Arguments" not in out
    assert "discard it; or, once a worker can read it: celery dlq redrive 0d3f" in out


def test_records_have_an_unreadable_body_and_its_size(read, unread):
    found = read("show", "0d3f", "--body")
    assert found["body_size"] == len(base64.b64decode(found["body"])) == 12
    assert found["body_shown"] == "12 bytes that are not text"
    assert "body" not in read("show", "0d3f")


def test_readable_arguments_hide_the_raw_body(run, read, store):
    """Their display copies hide secrets, which the body does not."""
    secret = envelope("0d3f", body=b'[[], {"token": "s3cret"}, {}]')
    unknown = letter("0d3f", reason=Reason.UNKNOWN_TASK, args=[], kwargs={"token": "[redacted]"},
                     envelope=secret)  # fmt: skip
    store.letters.save([unknown])
    out = run("show", "0d3f").stdout
    assert "s3cret" not in out
    assert "deploy the task, then: celery dlq redrive 0d3f" in out
    assert read("show", "0d3f")["body_shown"] is None


def test_an_empty_body_is_not_shown(run, read, store):
    empty = letter("0d3f", args=None, kwargs=None, envelope=envelope("0d3f", body=b""))
    store.letters.save([empty])
    out = run("show", "0d3f").stdout
    assert "0 bytes of application/json" in out
    assert not {"Arguments", "Body"} & set(out.splitlines())
    assert read("show", "0d3f")["body_shown"] is None
