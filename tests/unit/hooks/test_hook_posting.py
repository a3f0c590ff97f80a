"""Webhooks and Slack against a real server."""

import http.server
import json
import socket
import threading
import urllib.error
import urllib.request
from functools import partial

import pytest
import standardwebhooks
from support.factories import letter

from celery_dlq.errors import HookError, SettingsError
from celery_dlq.hooks import EventKind, Slack, Webhook
from celery_dlq.hooks.http import CAP_S, Poster
from celery_dlq.model.audit import AuditHead

SECRET = "whsec_" + "c2VjcmV0" * 4


class Receiver(http.server.ThreadingHTTPServer):
    """Keeps what is posted, and answers as told: a status, and headers."""

    daemon_threads = True

    def __init__(self, answers):
        super().__init__(("127.0.0.1", 0), Handler)
        self.got, self.answers = [], list(answers)

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_port}/hook?key=s3cret"


class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.got.append((self.path, dict(self.headers), body))
        status, headers = self.server.answers.pop(0) if self.server.answers else (200, {})
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(b"said\nthe server")

    def log_message(self, *args):
        pass


@pytest.fixture
def receiver():
    """Starts a server with these answers; 200 after them."""
    servers = []

    def start(*answers):
        server = Receiver(answers)
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        servers.append(server)
        return server

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


@pytest.fixture
def pauses():
    return []


@pytest.fixture
def poster(pauses):
    return partial(Poster, sleep=pauses.append, draw=lambda _low, high: high)


@pytest.fixture
def webhook(poster):
    return partial(Webhook, secret=SECRET, make_poster=poster)


def test_a_webhook_is_signed_as_the_standards_own_library_wants(receiver, webhook, event):
    server, told = receiver(), event()
    webhook(server.url)(told)
    [(path, headers, body)] = server.got
    assert path == "/hook?key=s3cret"
    assert headers["Content-Type"] == "application/json"
    said = standardwebhooks.Webhook(SECRET).verify(body, headers)
    assert said["type"] == "dead_letter"
    assert said["timestamp"] == told.at.isoformat()
    assert said["data"]["task_id"] == "0d3f"
    with pytest.raises(standardwebhooks.WebhookVerificationError):
        standardwebhooks.Webhook(SECRET).verify(body + b" ", headers)


def test_each_retry_has_full_jitter_and_a_new_signature(receiver, poster, pauses, event):
    server, times = receiver((503, {}), (500, {}), (429, {})), iter([10.0, 20.0, 30.0, 40.0])
    Webhook(server.url, SECRET, make_poster=poster, clock=lambda: next(times))(event())
    assert pauses == [0.5, 1.0, 2.0]
    headers = [headers for _, headers, _ in server.got]
    assert [each["Webhook-Timestamp"] for each in headers] == ["10", "20", "30", "40"]
    assert len({each["Webhook-Id"] for each in headers}) == 1
    assert len({each["Webhook-Signature"] for each in headers}) == 4


@pytest.mark.parametrize(("wished", "pause"), [("7", 7.0), ("3600", CAP_S), ("0", 0.5)])
def test_the_servers_wish_is_heard_and_bounded(receiver, webhook, pauses, event, wished, pause):
    webhook(receiver((429, {"Retry-After": wished})).url)(event())
    assert pauses == [pause]


def test_after_the_last_attempt_it_is_an_error_without_the_secret(receiver, webhook, event):
    server = receiver(*[(503, {})] * 3)
    with pytest.raises(HookError, match=r"answered 503: said the server \(attempt 3\)") as raised:
        webhook(server.url, attempts=3)(event())
    assert len(server.got) == 3
    assert "s3cret" not in str(raised.value)


@pytest.mark.parametrize("status", [400, 401, 404, 410])
def test_a_refusal_is_final(receiver, webhook, pauses, event, status):
    with pytest.raises(HookError, match=f"answered {status}.*attempt 1"):
        webhook(receiver((status, {})).url)(event())
    assert pauses == []


def test_a_redirect_is_not_followed(receiver, webhook, event):
    target = receiver()
    with pytest.raises(HookError, match="redirects to another URL"):
        webhook(receiver((302, {"Location": target.url})).url)(event())
    assert target.got == []


def test_a_server_that_is_away_is_tried_again(webhook, pauses, event):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with pytest.raises(HookError, match=r"does not answer: URLError.*attempt 2"):
        webhook(f"http://127.0.0.1:{port}/", attempts=2)(event())
    assert pauses == [0.5]


def test_a_server_that_says_nothing_is_given_up(webhook, event):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/"
        with pytest.raises(HookError, match=r"does not answer: (TimeoutError|URLError)"):
            webhook(url, attempts=1, timeout=0.05)(event())


@pytest.mark.parametrize(
    "url", ["", "example.com/hook", "ftp://example.com", "file:///etc/passwd", "http://", "http://[", None]
)  # fmt: skip
def test_an_invalid_url_is_refused(url):
    with pytest.raises(SettingsError, match="https://"):
        Webhook(url, SECRET)


def test_every_answer_is_closed_also_before_another_try(receiver, poster, monkeypatch):
    """Python 3.14 warns of others when they are collected as garbage."""
    answers = []

    class Kept(urllib.error.HTTPError):
        def __init__(self, *args):
            super().__init__(*args)
            answers.append(self)

    monkeypatch.setattr(urllib.request, "HTTPError", Kept)
    server = receiver((503, {}), (503, {}), (400, {}))
    with pytest.raises(HookError, match=r"answered 400: said the server \(attempt 3\)"):
        poster(server.url, timeout_s=5, attempts=4).post(b"{}", dict)
    assert [(answer.code, answer.closed) for answer in answers] == [
        (503, True), (503, True), (400, True),
    ]  # fmt: skip


@pytest.mark.parametrize("secret", ["", "whsec_", "whsec_c2hvcnQ=", "not base64!", None, "A" * 200])
def test_an_invalid_secret_is_refused(secret):
    with pytest.raises(SettingsError, match="24 to 64 bytes in base64; make one"):
        Webhook("https://example.com", secret)


@pytest.mark.parametrize("wrong", [{"timeout": 0}, {"attempts": 0}])
def test_numbers_are_checked(wrong):
    with pytest.raises(SettingsError, match="at least one attempt"):
        Slack("https://hooks.slack.com/services/s3cret", **wrong)


def test_their_names_contain_no_secret():
    hooks = [
        Slack("https://hooks.slack.com/s3cret"),
        Webhook("https://a.example:8443/s3cret", SECRET),
    ]
    assert [*map(repr, hooks)] == [
        "<Slack https://hooks.slack.com>",
        "<Webhook https://a.example:8443>",
    ]


class TestSlack:
    @pytest.fixture
    def said(self, receiver, poster, event):
        def say(kind, value=None, **options):
            server = receiver()
            Slack(server.url, make_poster=poster, **options)(event(kind, value))
            [(_, _, body)] = server.got
            return json.loads(body)

        return say

    def test_a_group(self, said, group):
        assert said(EventKind.NEW_GROUP, group, flower="https://flower.example.com/") == {
            "text": "<https://flower.example.com/dead-letters/groups/9c1e0000deadbeef|"
            "New group of dead letters>: 9c1e0000deadbeef, shop.charge, ValueError: bad &lt;currency&gt; "
            "&amp; more (3 open)"
        }

    def test_a_letter(self, said):
        text = said(EventKind.DEAD_LETTER)["text"]
        assert text.startswith("Dead letter: shop.charge[0d3f] ")

    def test_a_route(self, said):
        text = said(EventKind.DEAD_LETTER, letter(route="pay & mail"))["text"]
        assert text.endswith(", route pay &amp; mail")

    def test_a_stall(self, said, stall):
        text = said(EventKind.WORKER_STALLED, stall, flower="https://f.example")["text"]
        assert text.startswith("<https://f.example/dead-letters|Worker stalled>: w@host ")

    def test_a_head_of_the_audit(self, said):
        message = said(EventKind.AUDIT, AuditHead(n=3, hash="ab"), flower="https://f.example")
        assert message["text"] == "<https://f.example/dead-letters|Audit>: head 3:ab"

    def test_an_operation(self, said, aborted):
        text = said(EventKind.OPERATION_ABORTED, aborted, flower="https://f.example")["text"]
        assert "/dead-letters/operations/0a1b2c3d4e5f|" in text
        assert text.endswith(": 3 in a row came back")
