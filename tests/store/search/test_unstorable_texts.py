"""Any text may be asked for, also one that a database refuses."""

from __future__ import annotations

from datetime import timedelta

import pytest
from support.factories import T0, attempt, letter

from celery_dlq.model.group import GroupFilter
from celery_dlq.model.operation import OperationState
from celery_dlq.store.base import Argument, Filter

pytestmark = pytest.mark.on_servers

UNSTORABLE = ["\x00", "a\x00b", "\ud800", "a\udfffb"]

FIELDS = (
    "task", "exception", "queue", "group", "route", "worker", "release", "tag", "root", "rule", "operation",
    "search",
)  # fmt: skip


@pytest.mark.parametrize("text", UNSTORABLE)
def test_no_filter_is_refused(store, text):
    store.letters.save([letter("a", attempt())])
    for field in FIELDS:
        assert not store.letters.find(Filter(**{field: text})).letters, field
    assert not store.letters.find(Filter(ids=(text,))).letters
    assert not store.letters.find(Filter(values=(text,))).letters
    assert not store.letters.find(Filter(args=(Argument(path=text, value=text),))).letters


@pytest.mark.parametrize("text", UNSTORABLE)
def test_no_other_question_is(store, text):
    now = T0 + timedelta(hours=1)
    assert not store.audit.find(who=text, act=text, letter=text, group=text).rows
    assert store.groups.get(text, now=now) is None
    assert not store.groups.match(text)
    assert not store.groups.find(Filter(), now=now, which=GroupFilter(owner=text))
    assert not any(store.groups.trends([text], now=now)[text])
    assert store.letters.get(text) is None
    assert not store.letters.match(text)
    assert not store.letters.read([text])[0]
    assert store.operations.get(text) is None
    assert not store.operations.match(text)
    assert not store.operations.find(states=frozenset(OperationState))
    assert not store.sendings.of_letter(text)
    assert not store.tickets.of_groups([text])
    assert not store.automations.find(name=text).rows


@pytest.mark.parametrize("text", UNSTORABLE)
def test_an_act_with_such_a_name_is_kept(store, text):
    store.letters.save([letter("a", attempt())])
    assert store.closing.discard(Filter(ids=("a",)), who=f"ann{text}", why=text, now=T0) == 1
    assert len(store.audit.find(who=f"ann{text}").rows) == 1
