"""A secret in every place that may hold one, and no hook that sends it away."""

import json
import logging
import time

import pytest
import sentry_sdk
from support.factories import T0
from support.stores.planted_secrets import SECRET, planted_letter, planted_operation

from celery_dlq.base.redact import Redactor
from celery_dlq.hooks import Event, EventHook, EventKind, Log, Sentry, Slack, Webhook
from celery_dlq.hooks.caller import Caller, Waiting
from celery_dlq.model.group import Group

KINDS = {
    EventKind.DEAD_LETTER: planted_letter(),
    EventKind.NEW_GROUP: Group(
        fingerprint="9c1e", task="shop.charge", exception_type="ValueError",
        message=planted_letter().message, open_count=1, total_count=1, first_seen_at=T0, last_seen_at=T0,
    ),
    EventKind.OPERATION_ABORTED: planted_operation(),
}  # fmt: skip


class Kept:
    """In the place of what posts."""

    place = "nowhere"

    def __init__(self, sent):
        self._sent = sent

    def post(self, body, _headers):
        self._sent.append(body.decode())


@pytest.fixture(params=KINDS, ids=str)
def event(request):
    return Event(kind=request.param, at=T0, value=KINDS[request.param])


@pytest.fixture
def sent():
    return []


@pytest.mark.parametrize("hook", ["webhook", "slack"])
def test_the_posted_text_has_no_secrets(event, sent, hook):
    made = {
        "webhook": lambda **given: Webhook("https://h", "whsec_" + "c2VjcmV0" * 4, **given),
        "slack": lambda **given: Slack("https://h", **given),
    }[hook](make_poster=lambda *_, **__: Kept(sent))
    made(event)
    [body] = sent
    assert SECRET not in body
    assert "[redacted]" in body


def test_the_log(event, caplog):
    with caplog.at_level(logging.INFO, "celery_dlq.events"):
        Log()(event)
    [record] = caplog.records
    for text in (record.getMessage(), json.dumps(record.dlq_event)):
        assert SECRET not in text
        assert "[redacted]" in text


def test_sentry(event, sent, monkeypatch):
    monkeypatch.setattr(sentry_sdk, "capture_event", sent.append)
    Sentry()(event)
    assert SECRET not in json.dumps(sent)
    assert "[redacted]" in json.dumps(sent)


def test_a_hook_of_the_apps_own_has_the_apps_list(sent):
    class Mine(EventHook):
        def __call__(self, event):
            sent.append((event.value.message, event.shown.message))

    letter = planted_letter(message="pin=1234 and password=x")
    caller = Caller(Mine(), redactor=Redactor(["pin"]))
    caller.put(Waiting(EventKind.DEAD_LETTER, T0, lambda: letter))
    caller.finish(time.monotonic() + 30.0)
    assert sent == [("pin=1234 and password=x", "pin=[redacted] and password=[redacted]")]
