"""Flower with the tab, over a real store, and a client that sends requests like a browser or a program."""

from __future__ import annotations

import asyncio
import base64
import re
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property
from html.parser import HTMLParser
from urllib.parse import urlencode

import pytest
from support.auto_world import queue as queue_letters
from support.factories import T0, attempt, envelope, letter, operation
from tornado.httpclient import AsyncHTTPClient, HTTPResponse
from tornado.httpserver import HTTPServer
from tornado.ioloop import IOLoop
from tornado.options import options
from tornado.testing import bind_unused_port
from tornado.web import create_signed_value

from celery_dlq import AutoRedrive, Filter
from celery_dlq.api.queue import DeadLetterQueue
from celery_dlq.flower import SITE, install
from celery_dlq.flower.resources import letters
from celery_dlq.store.letters import pages
from celery_dlq.store.sql import SQLStore
from celery_dlq.view import times

NOW = T0 + timedelta(hours=1)

#: A test of a slow store sets its own.
PATIENCE_S = 60


@pytest.fixture(autouse=True)
def still_clock(monkeypatch):
    monkeypatch.setattr(times, "utc_now", lambda: NOW)
    monkeypatch.setattr(SQLStore, "now", lambda _store: NOW)
    for name in ("COUNT_PATIENCE_S", "SEARCH_PATIENCE_S", "API_PATIENCE_S"):
        monkeypatch.setattr(letters, name, PATIENCE_S)
    monkeypatch.setattr(pages, "QUICK_S", PATIENCE_S)
    monkeypatch.delenv("FLOWER_UNAUTHENTICATED_API", raising=False)
    monkeypatch.delenv("CELERY_DLQ_STORE_URL", raising=False)


@pytest.fixture
def app(shop_app):
    return shop_app


@pytest.fixture(name="operation")
def operation_maker():
    return operation


@pytest.fixture
def store(app):
    return DeadLetterQueue.of(app).store


@pytest.fixture
def three(store):
    """Three open letters of two causes, the newest last; returns their ids."""
    timeout = attempt(minutes=30, exception_type="requests.exceptions.Timeout", message="too slow")
    late = letter(
        "77e1", timeout, exception_type="requests.exceptions.Timeout", message="too slow",
        fingerprint="aaaa000000000000", task="shop.mail",
        envelope=envelope("77e1", queue="mail", routing_key="mail"),
    )  # fmt: skip
    store.letters.save(
        [
            letter("0d3f1111-aaaa", attempt(1, delay_s=0.4), attempt(2, minutes=10)),
            letter("0d3f2222-bbbb", attempt(minutes=20)),
            late,
        ]
    )
    return ["0d3f1111-aaaa", "0d3f2222-bbbb", "77e1"]


@pytest.fixture
def round_of_retention(app, store):
    """One letter was closed ten days ago, and a round of retention has left it."""
    long_ago = NOW - timedelta(days=10)
    store.letters.save([letter("gone", attempt(failed_at=long_ago))])
    store.closing.discard(Filter(ids=("gone",)), who="ann", why="", now=long_ago)
    held = store.leases.take("retention", holder="me", seconds=60)
    assert DeadLetterQueue.of(app).retention.run(held, lambda _seconds: False).is_over


@pytest.fixture
def shop(app):
    """The queue of an app with two automatic redrives of the same letters, the first in shadow mode."""
    charges = Filter(task="shop.charge")
    app.conf.dlq_auto_redrive = (
        AutoRedrive("trial", where=charges, mode="shadow"),
        AutoRedrive("charges", where=charges, owner="payments"),
    )
    return DeadLetterQueue.of(app)


@pytest.fixture
def lease(store):
    """The lease of the worker that runs automatic redrives."""
    return store.leases.take("auto.test", holder="a worker", seconds=1_000_000)


@pytest.fixture
def hold(store, lease):
    """Lets the automatic redrive ``charges`` hold a letter, for a reason."""
    return lambda task_id, why: store.automations.hold(lease, "charges", {task_id: why}, NOW)


@pytest.fixture
def handled(app, store):
    """Lets the handler ``ticketing`` end a letter with a verdict."""

    def handled(task_id, verdict):
        queue = DeadLetterQueue.of(app)
        if "ticketing" not in queue.handlers:
            queue.handler(all=True, once_per_group=True, name="ticketing")(lambda _letter: verdict)
        scope = queue.handlers["ticketing"].scope
        lease = store.leases.take("handlers", holder="me", seconds=600)
        queue_letters(store, lease, scope)
        for number in store.automations.take_due(lease, scope, limit=100, again_s=1):
            if store.automations.get(number).task_id == task_id:
                started = store.automations.start(number, worker="w", within_s=60)
                seen = store.letters.get(task_id)
                store.automations.end(started, seen, verdict, detail=dict(vars(verdict)))

    return handled


class _Reader(HTMLParser):
    """The elements of a page: their names, attributes and texts."""

    def __init__(self, html):
        super().__init__()
        self.elements, self._open = [], []
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        self.elements.append([tag, dict(attrs), ""])
        self._open.append(self.elements[-1])

    def handle_endtag(self, tag):
        if tag in [element[0] for element in self._open]:
            while self._open.pop()[0] != tag:
                pass

    def handle_data(self, data):
        for element in self._open:
            element[2] += data


@dataclass
class Answer:
    """A response with its parsed page."""

    status: int
    headers: dict
    body: str

    @cached_property
    def elements(self):
        """The elements of a page: names, attributes and texts."""
        is_page = "text/html" in self.headers.get("Content-Type", "")
        return _Reader(self.body).elements if is_page else []

    def find(self, tag, **attrs):
        """The elements with this name and these attributes."""
        wanted = {name.rstrip("_"): value for name, value in attrs.items()}
        return [
            (found, text)
            for name, found, text in self.elements
            if name == tag and all(found.get(key) == value for key, value in wanted.items())
        ]

    @property
    def text(self):
        """The whole text of the page."""
        [(_, text)] = self.find("body")
        return " ".join(text.split())

    def elements_and_names(self):
        """The elements of the page, each with the names of its attributes."""
        return [(tag, *sorted(found)) for tag, found, _ in self.elements]

    def form(self, action):
        """The named values of the form with this ``action``, which may be that of one of its buttons."""
        before, found, after = self.body.partition(f'action="{action}"')
        assert found, f"no form leads to {action}"
        form = before[before.rindex("<form") :] + found + after.partition("</form>")[0]
        fields = [found for tag, found, _ in _Reader(form).elements if tag == "input"]
        return [
            (found["name"], found.get("value", ""))
            for found in fields
            if "name" in found and (found.get("type") != "checkbox" or "checked" in found)
        ]


class Visitor:
    """Asks a Flower over HTTP; keeps cookies as a browser does."""

    def __init__(self, flower_app, loop):
        self.flower, self._loop = flower_app, loop
        self.cookies = {}
        self.headers = {}
        socket, self.port = bind_unused_port()
        self.host = f"127.0.0.1:{self.port}"

        async def serve():
            self._server = HTTPServer(flower_app)
            self._server.add_socket(socket)
            self._client = AsyncHTTPClient(force_instance=True)

        loop.run_until_complete(serve())

    def close(self):
        async def end():
            self._client.close()
            self._server.stop()
            await self._server.close_all_connections()

        self._loop.run_until_complete(end())

    def log_in(self, name, password):
        """By basic authentication."""
        given = base64.b64encode(f"{name}:{password}".encode()).decode()
        self.headers["Authorization"] = f"Basic {given}"

    def log_in_as(self, address):
        """Log in as if OAuth had redirected back."""
        secret = self.flower.settings["cookie_secret"]
        self.cookies["user"] = create_signed_value(secret, "user", address).decode()

    def get(self, path, **headers):
        return self.ask("GET", path, headers=headers)

    def post(self, path, data=(), **headers):
        """Send a form as a browser sends it from a page of the same site."""
        given = {"Origin": f"http://{self.host}", "Sec-Fetch-Site": "same-origin", **headers}
        given["Content-Type"] = "application/x-www-form-urlencoded"
        pairs = data.items() if isinstance(data, dict) else data
        return self.ask("POST", path, urlencode(list(pairs)), given)

    def ask(self, method, path, body=None, headers=()):
        return self._loop.run_until_complete(self.answer(method, path, body, headers))

    async def answer(self, method, path, body=None, headers=()):
        sent = {**self.headers, **dict(headers)}
        if self.cookies:
            sent["Cookie"] = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
        got: HTTPResponse = await self._client.fetch(
            f"http://{self.host}{path}", method=method, body=body, headers=sent,
            follow_redirects=False, raise_error=False, allow_nonstandard_methods=True,
            request_timeout=2 * PATIENCE_S,
        )  # fmt: skip
        for cookie in got.headers.get_list("Set-Cookie"):
            name, value = re.match(r"([^=]+)=([^;]*)", cookie).groups()
            self.cookies[name] = value
        return Answer(got.code, got.headers, got.body.decode() if got.body else "")


@pytest.fixture
def loop():
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    yield loop
    loop.run_until_complete(loop.shutdown_default_executor())
    asyncio.set_event_loop(None)
    loop.close()


@pytest.fixture
def flower_options(monkeypatch):
    """Sets options of Flower for one test."""

    def set_options(**values):
        for name, value in values.items():
            monkeypatch.setattr(options.mockable(), name, value)

    return set_options


@pytest.fixture
def visit(app, loop, flower_options):
    """Starts a Flower with options, and gives a visitor of it."""
    from flower import command, urls  # noqa: F401 - defines the options
    from flower.app import Flower

    install()
    visitors = []

    def visit(capp=app, **given):
        flower_options(**given)
        prefix = f"/{given['url_prefix'].strip('/')}" if given.get("url_prefix") else ""
        settings = {
            **urls.settings,
            "login_url": f"{prefix}/login",
            "static_url_prefix": f"{prefix}/static/",
        }
        made = Flower(capp=capp, options=options, io_loop=IOLoop.current(), **settings)
        if SITE in made.settings:
            made.settings[SITE].calls.patience_s = PATIENCE_S
        visitors.append(Visitor(made, loop))
        return visitors[-1]

    yield visit
    for visitor in visitors:
        visitor.close()
        # An app of the test's own has a store of its own.
        queue = vars(visitor.flower.capp).get("dead_letter_queue")
        if queue is not None and "store" in vars(queue):
            queue.store.close()


@pytest.fixture
def ann(visit, three):
    """Ann, who has logged in; there are three letters."""
    visitor = visit(basic_auth=["ann:secret"])
    visitor.log_in("ann", "secret")
    return visitor


@pytest.fixture
def site_of():
    """The shared state of the pages of a visitor's Flower."""
    return lambda visitor: visitor.flower.settings[SITE]
