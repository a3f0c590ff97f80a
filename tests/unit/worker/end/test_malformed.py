import math

import pytest
from celery import Celery
from kombu.message import Message

from celery_dlq.worker.end.malformed import malformation, refusal

TASK = {"task": "t", "id": "a"}


def message(body, headers=TASK, content_type="application/json"):
    return Message(body, content_type=content_type, content_encoding="utf-8", headers=headers)


GOOD = {
    "three parts": message(b"[[1], {}, {}]"),
    "no embed": message(b"[[1], {}, null]"),
    "a number as id": message(b"[[], {}, {}]", {"task": "t", "id": 7}),
    "limits": message(b"[[], {}, {}]", {**TASK, "timelimit": [None, 1.5], "retries": 3}),
    "a body of Celery 3 under new headers": message(b'{"args": [], "kwargs": {}}'),
    "the protocol of Celery 3": message(b'{"task": "t", "id": "a", "args": []}', {}),
}  # fmt: skip

BAD = {
    "the body cannot be decoded: ": message(b"{"),
    "the body is not (args, kwargs, embed) but nothing": message(b"null"),
    "the body is not (args, kwargs, embed) but int": message(b"7"),
    "the body is not (args, kwargs, embed) but a list of 4": message(b"[1, 2, 3, 4]"),
    "args are not a list but str": message(b'["abc", {}, {}]'),
    "kwargs are not a table but nothing": message(b"[[], null, {}]"),
    "the third part of the body is not a table but int": message(b"[[], {}, 1]"),
    "the task's name is not text but nothing": message(b"[[], {}, {}]", {"task": None, "id": "a"}),
    "the task's name is not text but dict": message(b'{"task": {}, "id": "a"}', {}),
    "it has no id": message(b"[[], {}, {}]", {"task": "t"}),
    "the id is not text but a list of 1": message(b"[[], {}, {}]", {"task": "t", "id": [1]}),
    "retries are not a number but str": message(b"[[], {}, {}]", {**TASK, "retries": "1"}),
    "timelimit is not a pair but int": message(b"[[], {}, {}]", {**TASK, "timelimit": 5}),
    "timelimit is not a pair but a list of 3": message(b"[[], {}, {}]", {**TASK, "timelimit": [1, 2, 3]}),
    "timelimit is not a pair of numbers": message(b"[[], {}, {}]", {**TASK, "timelimit": ["a", 1]}),
    "timelimit is not a pair of numbers ": message(b"[[], {}, {}]", {**TASK, "timelimit": [math.nan, 1]}),
    "timelimit is not a pair of numbers  ": message(b"[[], {}, {}]", {**TASK, "timelimit": [10**400, 1]}),
    "the body is not a table but a list of 3": message(b"[1, 2, 3]", {}),
    "the shadow is not text but a list of 1": message(b"[[], {}, {}]", {**TASK, "shadow": [1]}),
    "the third part of the body overwrites is_eager": message(b'[[], {}, {"is_eager": 1}]'),
    "the third part of the body overwrites args, id": message(b'[[], {}, {"id": 1, "args": [], "x": 1}]'),
}  # fmt: skip


@pytest.mark.parametrize("what", GOOD)
def test_nothing_is_wrong_with(what):
    assert malformation(GOOD[what]) is None


@pytest.mark.parametrize("why", BAD)
def test_says(why):
    assert malformation(BAD[why]).startswith(why.rstrip(" ") if "pair" in why else why)


def _task(): ...


@pytest.fixture(scope="module")
def app():
    app = Celery("unit", broker="memory://", set_as_current=False)
    app.task(name="t", shared=False)(_task)
    app.finalize()
    yield app
    app.close()


def test_celery_makes_a_request_of_what_nothing_is_wrong_with(app):
    assert {refusal(one, app) for one in GOOD.values()} == {None}


def test_whether_it_would_make_one_of_an_unknown_task_is_not_known(app):
    assert refusal(message(b"[[], {}, {}]", {**TASK, "task": "far.away"}), app) is None


HALF_WAY = {
    "an empty text as eta": {"eta": ""},
    "a zero as expires": {"expires": 0},
    "stamps that are a list": {"stamped_headers": ["a"], "stamps": ["a"]},
    "stamped headers that are a number": {"stamped_headers": 5},
    "a time that cannot be compared": {"expires": "0001-01-01T00:00:00+14:00"},
    "a name that no event can say": {"argsrepr": object()},
}


@pytest.mark.parametrize("what", HALF_WAY)
def test_what_celery_meets_half_way_is_the_fault_of_the_message(app, what):
    bad = message(b"[[], {}, {}]", {**TASK, **HALF_WAY[what]})
    assert malformation(bad) is None
    assert refusal(bad, app).startswith("no request can be made of it: ")


def test_so_is_it_in_the_protocol_of_celery_3(app):
    bad = message(b'{"task": "t", "id": "a", "args": [], "kwargs": {}, "eta": ""}', {})
    assert refusal(bad, app).startswith("no request can be made of it: ")
