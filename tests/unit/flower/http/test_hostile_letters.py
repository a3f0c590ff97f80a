"""Letters with hostile content in every field."""

import json
import re
from datetime import timedelta
from urllib.parse import quote, urlencode

from support.factories import T0, attempt, envelope, letter
from support.stores.losses import trouble

from celery_dlq.flower.http import request
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


def check(page, plain, case):
    """``page`` has the elements and attributes of a harmless letter's page, and shows no character that
    hides or reorders others."""
    assert page.status == 200, case
    assert set(page.elements_and_names()) <= set(plain.elements_and_names()), case
    assert not re.search("[\x00\x1b\u202a-\u202e\u2066-\u2069\u200e\u200f]", page.text), case
    assert len(page.body) < 1_500_000, case


def test_content_stays_text_on_every_page(ann, store, three):
    store.letters.save([hostile("tame", "tame")])
    for text in TEXTS.values():
        store.letters.save([hostile(text, text[:100])])
    found = {one.task_id for one in store.letters.find(Filter(), limit=50).letters}
    wild = sorted(found - {"tame", *three})
    assert len(wild) == len(TEXTS)
    plain = ann.get("/dead-letters/letters/tame")
    for task_id in wild:
        check(ann.get(f"/dead-letters/letters/{quote(task_id, safe='')}"), plain, task_id)
    # The pages of acts show five examples.
    for act, together in (("letters", 50), ("redrive", 5), ("discard", 5)):
        plain = ann.get(f"/dead-letters/{act}?id=tame&id={three[0]}")
        for start in range(0, len(wild), together):
            ids = wild[start : start + together]
            page = ann.get(f"/dead-letters/{act}?{urlencode([('id', one) for one in ids])}")
            check(page, plain, (act, ids))
            for task_id in ids:
                assert page.find("a", href=f"/dead-letters/letters/{quote(task_id, safe='')}")


def test_content_stays_text_in_the_editor_and_in_diffs(ann, store):
    pages = {}
    for number, (name, text) in enumerate([("tame", "a"), *TEXTS.items()]):
        task_id = f"letter-{number}"
        body = json.dumps([[text], {text: text, "b": [{text: 1}]}, {}]).encode()
        headers = {"id": task_id, "task": text, "tenant": text}
        made = envelope(task_id, body=body, headers=headers)
        store.letters.save([letter(task_id, attempt(), task=text, envelope=made)])
        pages[name] = [in_the_editor(ann, task_id), in_the_plan(ann, task_id)]
    for name in TEXTS:
        for plain, page in zip(pages["tame"], pages[name], strict=True):
            check(page, plain, name)
            assert page.find("span", class_="dlq-diff-old"), name


def in_the_editor(visitor, task_id):
    """Its editor with an edit that was checked."""
    path = f"/dead-letters/letters/{task_id}/edit"
    page = visitor.get(path)
    assert page.status == 200
    texts = {found["name"]: text for found, text in page.find("textarea")}
    edited = {**texts, "args": "[]", "kwargs": "{}", "headers": "{}", "do": "check"}
    return visitor.post(path, {**dict(page.form(path)), **edited})


def in_the_plan(visitor, task_id):
    """The plan of a redrive that changes it."""
    path = "/dead-letters/redrive"
    form = dict(visitor.get(f"{path}?id={task_id}").form(path))
    given = {**form, "set": "args[0]=</pre>\nkwargs.b=2", "plan": "1"}
    return visitor.post(path, given)


def test_content_stays_text_in_forms(ann, three):
    def filled(text):
        return ann.get(
            f"/dead-letters/letters?{'&'.join(f'{one}={text}' for one in request.TEXTS)}"
        )

    # A blank text is no filter.
    known = {*filled("tame").elements_and_names(), *filled("").elements_and_names()}
    for name, text in TEXTS.items():
        asked = quote(text[:2_000].encode("utf-8", "replace"), safe="")
        page = filled(quote(text[:400].encode("utf-8", "replace"), safe=""))
        assert page.status == 200, name
        assert set(page.elements_and_names()) <= known, name
        for field in request.TEXTS:
            page = ann.get(f"/dead-letters/letters?{field}={asked}")
            assert page.status == 200, (name, field)
            assert "<script>alert" not in page.body, (name, field)
        for path in (f"/dead-letters/letters/{asked}", f"/dead-letters/letters?{asked}=1"):
            page = ann.get(path)
            assert page.status in {400, 404}, (name, path)
            assert "<script>alert" not in page.body, (name, path)


def test_names_of_workers_and_machines_are_hostile_too(ann, store, site_of, monkeypatch):
    now = T0 + timedelta(hours=1)
    monkeypatch.setattr(clock, "now", lambda _connection: now)
    pages = {}
    for name, text in (("tame", "tame"), *TEXTS.items()):
        store.recorder_reports.note(trouble(now, text))
        site_of(ann).snapshots.forget()
        pages[name] = ann.get("/dead-letters")
        store.recorder_reports.withdraw(trouble(now, text))
    assert pages["tame"].find("section", id="dlq-lost")
    for name in TEXTS:
        check(pages[name], pages["tame"], name)
        assert len(pages[name].body) < 100_000, name
