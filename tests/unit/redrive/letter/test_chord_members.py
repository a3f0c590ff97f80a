"""Which places in chords a failure has filled: as Celery itself builds the messages."""

import json

import pytest
from celery import Celery, chain, chord, group, signature
from support.factories import envelope, letter

from celery_dlq.redrive.letter.chords import members_of
from celery_dlq.redrive.letter.payload import accepted_by, read_payload


@pytest.fixture
def app():
    app = Celery("unit", broker="memory://", backend="cache+memory://", set_as_current=False)
    app.task(_task, name="t", shared=False)
    return app


def _task(*args): ...


@pytest.fixture
def messages(app):
    """The letters of what a canvas sends at once, in order."""

    def messages(canvas):
        canvas.apply_async()
        found = []
        with app.connection_for_read() as connection:
            queue = connection.SimpleQueue("celery")
            while queue.qsize():
                message = queue.get(timeout=1)
                message.ack()
                sent = envelope(
                    message.headers["id"], body=json.dumps(message.payload).encode(),
                    headers=dict(message.headers),
                )  # fmt: skip
                found.append(letter(message.headers["id"], envelope=sent))
            queue.close()
        return found

    return messages


@pytest.fixture
def parts(app):
    def parts(made):
        payload = read_payload(made.envelope, accepted_by(app))
        return [(part.task_id, part.index) for part in members_of(made, payload)]

    return parts


@pytest.fixture
def t(app):
    return lambda name: signature("t", args=(name,), app=app, task_id=name)


def test_of_a_member(messages, parts, t, app):
    first, second = messages(chord([t("a"), t("b")], t("body"), app=app))
    assert parts(first) == [("a", 0)]
    assert parts(second) == [("b", 1)]


def test_of_a_task_in_front_of_a_member(messages, parts, t, app):
    made, *_ = messages(chord([chain(t("a"), t("b"), t("c")), t("d")], t("body"), app=app))
    assert made.task_id == "a"
    assert parts(made) == [("c", 0)]


def test_a_member_whose_chord_is_a_member(messages, parts, t, app):
    inner = chord([t("a"), t("b")], t("inner"), app=app)
    sent = {made.task_id: made for made in messages(chord([inner, t("d")], t("outer"), app=app))}
    assert parts(sent["a"]) == [("a", 0), ("inner", 0)]
    assert parts(sent["d"]) == [("d", 1)]


def test_a_letter_outside_chords(messages, parts, t, app):
    assert parts(messages(chain(t("a"), t("b"), app=app))[0]) == []
    assert [parts(made) for made in messages(group(t("a"), t("b"), app=app))] == [[], []]


@pytest.mark.parametrize(
    "embed",
    [
        {"chord": 5}, {"chain": 7}, {"chain": [5, None, {"options": None}]}, {"chain": [{"options": {}}]},
        {"chain": [{"subtask_type": "chord", "kwargs": {"body": []}, "options": {}}]}, {"chord": []},
    ],
)  # fmt: skip
def test_of_hostile_messages(parts, embed):
    body = json.dumps([[], {}, embed]).encode()
    headers = {"id": "0d3f", "group": "g", "task": "t"}
    assert parts(letter(envelope=envelope(body=body, headers=headers))) == []
