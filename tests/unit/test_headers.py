import pytest

from celery_dlq.headers import (
    COPY_HEADER,
    REDRIVE_HEADER,
    RELEASE_HEADER,
    release_of,
    sending_of,
)


def test_a_release_names_its_parking_and_its_copy():
    assert release_of({RELEASE_HEADER: "here.4711/2"}) == ("here.4711", 2)


@pytest.mark.parametrize(
    "value",
    [None, 7, "", "here.1", "/1", "here.1/x", "here.1/²", "a\x00b/1", "x" * 65 + "/1", "a/" + "9" * 20],
)  # fmt: skip
def test_what_is_no_release_of_ours_is_none(value):
    assert release_of({RELEASE_HEADER: value}) is None


def test_a_redriven_message_names_its_redrive_and_its_copy():
    assert sending_of({REDRIVE_HEADER: 2, COPY_HEADER: "5c"}) == (2, "5c")


@pytest.mark.parametrize(
    "headers",
    [
        None,
        {},
        {REDRIVE_HEADER: 2},
        {COPY_HEADER: "5c"},
        {REDRIVE_HEADER: 0, COPY_HEADER: "5c"},
        {REDRIVE_HEADER: "2", COPY_HEADER: "5c"},
        *({REDRIVE_HEADER: 2, COPY_HEADER: copy} for copy in (5, "", "\x00", "é", "x" * 65)),
    ],
)
def test_what_is_no_sending_of_ours_is_none(headers):
    assert sending_of(headers) is None
