import pytest
from kombu.message import Message

from celery_dlq.worker.foreign.malformed import malformation

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
    "args are no list but str": message(b'["abc", {}, {}]'),
    "kwargs are no table but nothing": message(b"[[], null, {}]"),
    "the third part of the body is no table but int": message(b"[[], {}, 1]"),
    "the task's name is no text but nothing": message(b"[[], {}, {}]", {"task": None, "id": "a"}),
    "the task's name is no text but dict": message(b'{"task": {}, "id": "a"}', {}),
    "it has no id": message(b"[[], {}, {}]", {"task": "t"}),
    "the id is no text but a list of 1": message(b"[[], {}, {}]", {"task": "t", "id": [1]}),
    "retries are no number but str": message(b"[[], {}, {}]", {**TASK, "retries": "1"}),
    "timelimit is no pair but int": message(b"[[], {}, {}]", {**TASK, "timelimit": 5}),
    "timelimit is no pair but a list of 3": message(b"[[], {}, {}]", {**TASK, "timelimit": [1, 2, 3]}),
    "timelimit is no pair of numbers": message(b"[[], {}, {}]", {**TASK, "timelimit": ["a", 1]}),
    "the body is no table but a list of 3": message(b"[1, 2, 3]", {}),
}  # fmt: skip


@pytest.mark.parametrize("what", GOOD)
def test_nothing_is_wrong_with(what):
    assert malformation(GOOD[what]) is None


@pytest.mark.parametrize("why", BAD)
def test_says(why):
    assert malformation(BAD[why]).startswith(why)
