"""Tasks that were linked to the failure of a message."""

import json

from support.factories import bomb, envelope

from celery_dlq.redrive.payload import linked_to
from celery_dlq.unpack import SHOWN_LIMIT


def with_body(**embed):
    return envelope(body=json.dumps([[], {}, embed]).encode())


def test_errbacks_are_named():
    linked = with_body(errbacks=[{"task": "shop.alert"}, {"task": "shop.undo"}, 5])
    assert linked_to(linked).tasks == ("shop.alert", "shop.undo")
    assert linked_to(with_body(errbacks=None)).tasks == ()


def test_errbacks_are_read_from_json_only():
    assert linked_to(envelope(body=b"{")) == ((), "")
    assert linked_to(envelope(content_type="application/x-python-serialize")) == ((), "")


def test_a_body_that_is_too_large_is_not_opened_for_errbacks():
    packed = linked_to(bomb(SHOWN_LIMIT).envelope)
    assert packed == ((), "its body unpacks to more than 8 MiB, so it was not opened")
    plain = envelope(body=b'[["' + b"0" * SHOWN_LIMIT + b'"], {}, {}]')
    assert linked_to(plain) == ((), "its body is larger than 8 MiB, so it was not opened")
