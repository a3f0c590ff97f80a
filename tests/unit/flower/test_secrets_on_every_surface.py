"""Secrets in every place that may hold one: in arguments by name and by position, in long texts, in notes,
owners and reasons. No page, answer, file, tool, event, ticket or metric shows one, also when everything in it
that is encoded is decoded."""

import base64
import gzip
import json
import logging
import pickle
import sqlite3
import zlib

import pytest
import sentry_sdk
from celery.bin.base import CLIContext
from click.testing import CliRunner
from prometheus_client import CollectorRegistry, generate_latest
from pyarrow import parquet
from support.factories import T0, attempt, envelope, letter
from support.stores.archives import FakeStore, a_line, archive_all
from support.stores.decoding import decoded
from support.stores.planted_secrets import GROUP, OPERATION, SECRET, TASK_ID, TEXT, plant

from celery_dlq import DLQTask
from celery_dlq.api.queue import DeadLetterQueue
from celery_dlq.archive.bucket import open_bucket
from celery_dlq.base.redact import hide_known
from celery_dlq.cli import dlq
from celery_dlq.flower.routes import API, PAGES
from celery_dlq.hooks import Event, EventKind, Log, Sentry, Slack, Webhook
from celery_dlq.metrics.collector import register
from celery_dlq.model.fingerprint import Grounds
from celery_dlq.model.group import Annotate, Assign
from celery_dlq.model.states import Reason
from celery_dlq.store.base import Filter
from celery_dlq.tickets.text import text_about
from celery_dlq.worker.end.letters import dead_letter
from celery_dlq.worker.failure import failure_after
from celery_dlq.worker.message import Contents

NAMES = {
    "id": (TASK_ID, "5ec4e7bb", "5ec4e7cc", "unread", "pickled", "packed", "login", "old-login", OPERATION),
    "fingerprint": (GROUP,), "act": ("note", "cancel"),
    "name": ("charges",),
}  # fmt: skip

#: Pages for people who change a message, and so must see it. They say so.
SHOWS_THE_MESSAGE = "/edit"


@pytest.fixture
def app(shop_app):
    @shop_app.task(name="shop.login", base=DLQTask, shared=False)
    def login(user, password, note=""): ...

    return shop_app


@pytest.fixture
def queue(app):
    return DeadLetterQueue.of(app)


@pytest.fixture
def store(queue):
    """A store with secrets wherever workers, people and an earlier release may have written them."""
    store = queue.store
    plant(store)
    long = f"{'x ' * 1_000} {TEXT} {'y ' * 1_000} {TEXT}"
    failure = failure_after(
        (attempt(message=TEXT),), Reason.TERMINAL, traceback="", grounds=Grounds(needs_message=True)
    )
    args = ["ann", SECRET, long]
    sent = envelope(
        "login", headers={"task": "shop.login"}, body=json.dumps([args, {}, {}]).encode()
    )
    contents = Contents({"task": "shop.login"}, args, {})
    packed = zlib.compress(json.dumps([args, {}, {}]).encode())
    store.letters.save(
        [
            dead_letter("login", sent, contents, failure, queue),
            letter("old-login", task="shop.login", args=["ann", SECRET], envelope=sent, fingerprint="8888"),
            letter("pickled", args=None, kwargs=None, fingerprint="8889",
                   envelope=envelope("pickled", body=pickle.dumps(args), content_type="x-pickle")),
            letter("packed", args=None, kwargs=None, fingerprint="8890",
                   envelope=envelope("packed", body=packed, headers={"compression": "application/gzip"})),
        ]
    )  # fmt: skip
    store.groups.triage(GROUP, Annotate(note=TEXT), who="ann", now=T0)
    store.groups.triage(GROUP, Assign(owner=f"password={SECRET}"), who="ann", now=T0)
    store.closing.discard(Filter(ids=("packed",)), who="ann", why=TEXT, now=T0)
    return store


@pytest.fixture
def shows():
    """Checks that no text has the secret."""

    def shows(found):
        bad = [
            name for name, text in found.items() if any(SECRET in said for said in decoded(text))
        ]
        assert bad == []

    return shows


def test_what_is_encoded_is_decoded():
    raw = SECRET.encode()
    for text in (
        base64.b64encode(b"[[], {'a': '" + raw + b"'}]").decode(),
        base64.urlsafe_b64encode(b"\xff\xfe>>" + raw * 3).decode().rstrip("="),
        base64.b64encode(gzip.compress(raw * 9)).decode(),
        base64.b64encode(zlib.compress(raw * 9)).decode(),
        base64.b64encode(base64.b64encode(raw)).decode(),
        "".join(f"%{byte:02X}" for byte in raw), "".join(f"\\u{byte:04x}" for byte in raw),
        "".join(f"&#{byte};" for byte in raw), raw.hex(), raw.hex(" "),
    ):  # fmt: skip
        assert SECRET not in text
        assert any(SECRET in said for said in decoded(text)), text


def paths(ids):
    for route in (*PAGES, *API):
        names = [part[1:-1] for part in route.path.split("/") if part.startswith("{")]
        for value in {**NAMES, "id": ids}[names[0]] if names else ("",):
            path = route.path.replace(f"{{{names[0]}}}", value) if names else route.path
            if not path.endswith(SHOWS_THE_MESSAGE):
                yield path.replace("{act}", "note")


def answers_of(ann, ids):
    found = {path: ann.get(path) for path in paths(ids)}
    return {
        path: f"{answer.status} {answer.headers} {answer.body}" for path, answer in found.items()
    }


def test_pages_and_answers(ann, store, shows):
    found = answers_of(ann, ("old-login",))
    shows(found)
    assert sum(text.startswith("200") for text in found.values()) > 20
    closed = ann.get("/api/dead-letters?state=discarded&state=dead&limit=50")
    assert closed.status == 200
    shows({"closed": closed.body})


@pytest.mark.nightly
def test_pages_and_answers_about_each_letter(ann, store, shows):
    shows(answers_of(ann, NAMES["id"]))


def test_events_tickets_and_metrics(queue, store, shows, caplog, monkeypatch):
    sent = []
    monkeypatch.setattr(sentry_sdk, "capture_event", lambda event: sent.append(json.dumps(event)))

    class Kept:
        place = "nowhere"

        def post(self, body, headers):
            sent.append(f"{headers} {body.decode()}")

    kept = {"make_poster": lambda *_, **__: Kept()}
    hooks = [
        Webhook("https://h", "whsec_" + "c2VjcmV0" * 4, **kept),
        Slack("https://h", **kept),
        Log(),
        Sentry(),
    ]
    letters = [
        store.letters.get(one) for one in ("login", "old-login", "pickled", "packed", TASK_ID)
    ]
    group, operation = store.groups.get(GROUP, now=T0), store.operations.get(OPERATION)
    values = [
        *((EventKind.DEAD_LETTER, one) for one in letters),
        (EventKind.NEW_GROUP, group), (EventKind.REGRESSION, group), (EventKind.OPERATION_ABORTED, operation),
    ]  # fmt: skip
    with caplog.at_level(logging.INFO, "celery_dlq.events"):
        for kind, value in values:
            event = Event(kind=kind, at=T0, value=value, redactor=queue.redactor)
            for hook in hooks:
                hook(event)
            if kind is EventKind.DEAD_LETTER:
                about = text_about(event.shown, "shop")
                sent += [about.markdown(), about.wiki()]
    registry = CollectorRegistry()
    register(queue.snapshots, registry)
    logged = "\n".join(f"{record.getMessage()} {record.dlq_event}" for record in caplog.records)
    shows({**dict(enumerate(sent)), "log": logged, "metrics": generate_latest(registry).decode()})
    assert len(sent) == len(values) * 3 + len(letters) * 2


def test_files_of_the_archive(app, tmp_path, shows):
    place = tmp_path / "archive"
    place.mkdir()
    app.conf.dlq_archive_url = f"file://{place}"
    fields = {"closed_reason": hide_known(TEXT), "message": hide_known(TEXT)}
    line = a_line(
        1, task="shop.login", args=json.dumps(["ann", SECRET]), traceback=f"x\nE: {TEXT}", fields=fields,
        headers=json.dumps({"X-Auth-Token": SECRET}), body=base64.b64encode(SECRET.encode()).decode(),
    )  # fmt: skip
    archive_all(open_bucket(f"file://{place}"), FakeStore([line]))
    DeadLetterQueue.of(app).archive.adopt()
    context = CLIContext(app=app, no_color=True, workdir=None, quiet=False)
    found = {}
    for form in ("table", "json", "jsonl", "csv"):
        result = CliRunner().invoke(
            dlq, ["archive", "show", "id-000001", "--format", form], obj=context
        )
        assert result.exit_code == 0, result.output
        found[form] = result.output
    target = tmp_path / "letters.parquet"
    assert (
        CliRunner()
        .invoke(dlq, ["archive", "export", "--parquet", str(target)], obj=context)
        .exit_code
        == 0
    )
    found["parquet"] = json.dumps(parquet.read_table(target).to_pylist(), default=str)
    shows(found)


#: Columns with texts that are searched, or that people wrote. Those in :data:`HIDDEN_WHEN_SHOWN` are not
#: searched.
STORED = {
    "args",
    "kwargs",
    "message",
    "note",
    "owner",
    "why",
    "cause",
    "closed_reason",
    "log",
    "detail",
}
HIDDEN_WHEN_SHOWN = {"celery_dead_letter_attempt.message"}


def test_what_the_store_searches_and_what_people_wrote(app, store, shows):
    found = {}
    with sqlite3.connect(app.conf.dlq_store_url.removeprefix("sqlite:///")) as connection:
        # As an earlier release stored it.
        connection.execute(
            'delete from celery_dead_letter_content where args like \'["ann","Zq7%\''
        )
        for (table,) in connection.execute(
            "select name from sqlite_master where type = 'table'"
        ).fetchall():
            columns = {row[1] for row in connection.execute(f"pragma table_info({table})")}
            for name in STORED & columns:
                values = connection.execute(f"select {name} from {table}").fetchall()
                found[f"{table}.{name}"] = "\n".join(str(value) for (value,) in values)
    assert found.keys() > HIDDEN_WHEN_SHOWN
    shows({name: text for name, text in found.items() if name not in HIDDEN_WHEN_SHOWN})
