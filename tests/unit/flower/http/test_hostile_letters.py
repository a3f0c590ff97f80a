"""Letters with hostile content in every field."""

import json
import re
from datetime import timedelta
from urllib.parse import quote

import pytest
from support.factories import T0, attempt, envelope, letter
from support.stores.losses import trouble

from celery_dlq.flower import filters
from celery_dlq.model.letter import Explanation
from celery_dlq.model.states import Verdict
from celery_dlq.store.base import Filter
from celery_dlq.store.database import clock

TEXTS = {
    "script": "<script>alert(1)</script>",
    "attribute": "\" onmouseover=alert(1) x='",
    "end of a form": "</textarea></pre></form></title><img src=x onerror=alert(1)>",
    "template": "{{ handler.application.settings }}{% raw 1 %}",
    "address": "javascript:alert(1)//../../?a=b&c#d;%2e%2e",
    "nul": "a\x00b\x1b[31m\r\nc",
    "surrogate": "a\ud800b",
    "emoji": "\U0001f407\U0010ffff",
    "right to left": "\u202egpj.exe\u2066\u200f",
    "long line": "x" * 1_000_000,
    "many lines": "y\n" * 20_000,
    "blank": " ",
}


def hostile(text, task_id):
    # The fields of a letter that are cut before they are stored are stored whole here.
    return letter(
        task_id,
        attempt(1, delay_s=1.0, exception_type=text, message=text, rule=text, worker=text,
                evidence=text, path=text),
        task=text, exception_type=text, message=text, traceback=f'  File "{text}", line 1\n{text}',
        fingerprint=text[:64], worker=text, release=text, root_id=text[:200], parent_id=text[:200],
        group_id=text[:200], correlation_id=text[:200], canvas=text[:200], tags=(text,),
        explanation=Explanation(verdict=Verdict.TERMINAL, rule=text, evidence=text, path=text),
        args=[text, {text: text}], kwargs={text: text},
        envelope=envelope(task_id, exchange=text, routing_key=text, queue=text, content_type=text,
                          headers={text: text, "argsrepr": text}, properties={text: [text]}),
    )  # fmt: skip


def check(page, plain):
    """``page`` has the elements and attributes of a harmless letter's page, and shows no character that
    hides or reorders others."""
    assert page.status == 200
    assert set(page.elements_and_names()) <= set(plain.elements_and_names())
    assert not re.search("[\x00\x1b\u202a-\u202e\u2066-\u2069\u200e\u200f]", page.text)
    assert len(page.body) < 1_500_000


@pytest.mark.parametrize("name", TEXTS)
def test_content_stays_text_on_every_page(ann, store, three, name):
    text = TEXTS[name]
    task_id = text[:100]
    store.letters.save([hostile(text, task_id), hostile("tame", "tame")])
    pages = [
        "/dead-letters/letters?id={}",
        "/dead-letters/letters/{}",
        "/dead-letters/redrive?id={}",
        "/dead-letters/discard?id={}",
    ]
    [stored] = {found.task_id for found in store.letters.find(Filter()).letters} - {"tame", *three}
    for path in pages:
        check(ann.get(path.format(quote(stored, safe=""))), ann.get(path.format("tame")))


@pytest.mark.parametrize("name", TEXTS)
def test_content_stays_text_in_the_editor_and_in_diffs(ann, store, name):
    pages = []
    for task_id, text in (("tame", "a"), ("wild", TEXTS[name])):
        body = json.dumps([[text], {text: text, "b": [{text: 1}]}, {}]).encode()
        headers = {"id": task_id, "task": text, "tenant": text}
        made = envelope(task_id, body=body, headers=headers)
        store.letters.save([letter(task_id, attempt(), task=text, envelope=made)])
        pages.append(in_the_editor(ann, task_id) + in_the_plan(ann, task_id))
    for plain, page in zip(*pages, strict=True):
        check(page, plain)
        assert page.find("span", class_="dlq-diff-old")


def in_the_editor(visitor, task_id):
    """Its editor with an edit that was checked."""
    path = f"/dead-letters/letters/{task_id}/edit"
    page = visitor.get(path)
    assert page.status == 200
    texts = {found["name"]: text for found, text in page.find("textarea")}
    edited = {**texts, "args": "[]", "kwargs": "{}", "headers": "{}", "do": "check"}
    return [visitor.post(path, {**dict(page.form(path)), **edited})]


def in_the_plan(visitor, task_id):
    """The plan of a redrive that changes it."""
    path = "/dead-letters/redrive"
    form = dict(visitor.get(f"{path}?id={task_id}").form(path))
    given = {**form, "set": "args[0]=</pre>\nkwargs.b=2", "plan": "1"}
    return [visitor.post(path, given)]


@pytest.mark.parametrize("name", TEXTS)
def test_content_stays_text_in_forms(ann, three, name):
    asked = quote(TEXTS[name][:2_000].encode("utf-8", "replace"), safe="")
    plain = ann.get("/dead-letters/letters?task=tame")
    for field in filters.TEXTS:
        page = ann.get(f"/dead-letters/letters?{field}={asked}")
        assert page.status == 200
        assert set(page.elements_and_names()) <= set(plain.elements_and_names()) | set(
            ann.get("/dead-letters/letters").elements_and_names()
        )
    for path in (f"/dead-letters/letters/{asked}", f"/dead-letters/letters?{asked}=1"):
        assert ann.get(path).status in {400, 404}
        assert "<script>alert" not in ann.get(path).body


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_names_of_workers_and_machines_are_hostile_too(ann, store, site_of, monkeypatch, text):
    now = T0 + timedelta(hours=1)
    monkeypatch.setattr(clock, "now", lambda _connection: now)
    pages = []
    for name in ("tame", text):
        store.recorder_reports.note(trouble(now, name))
        site_of(ann).snapshots.forget()
        pages.append(ann.get("/dead-letters"))
        store.recorder_reports.withdraw(trouble(now, name))
    plain, page = pages
    assert plain.find("section", id="dlq-lost")
    check(page, plain)
    assert len(page.body) < 100_000
