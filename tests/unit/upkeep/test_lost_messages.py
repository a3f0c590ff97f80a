"""How a message had ended after all; and the letter of one that had not."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta, timezone

import pytest
from celery.exceptions import ImproperlyConfigured
from support.factories import T0, attempt, delivery, letter, parking

from celery_dlq import DeadLetterQueue
from celery_dlq.model.headers import REDRIVE_HEADER
from celery_dlq.model.letter import Outcome
from celery_dlq.model.states import Reason, State
from celery_dlq.recorder.segment import CopiedMessage
from celery_dlq.upkeep.lost_messages import NOT_ASKED, Outcomes, letter_of_lost

ACCEPTED = CopiedMessage(
    task="shop.charge",
    accepted_at=T0 - timedelta(seconds=1),
    process="",
    worker="w@host",
    pid=7,
    is_acknowledged=True,
    has_succeeded=False,
    headers={"id": "0d3f", "task": "shop.charge", "retries": 0},
    fields={},
    properties={},
    delivery_info={"exchange": "", "routing_key": "celery"},
    content_type="application/json",
    content_encoding="utf-8",
    body=b"[[17], {}, {}]",
    errors=(),
)


@pytest.fixture
def dlq(shop_app):
    return DeadLetterQueue.of(shop_app)


@pytest.fixture
def how(shop_app, dlq):
    def how(message=ACCEPTED, outcomes=None):
        outcomes = outcomes or Outcomes(shop_app, dlq.store)
        return outcomes.how_ended(message, letter_of_lost(message, shop_app, dlq))

    return how


def run_of(retries):
    return replace(ACCEPTED, headers={**ACCEPTED.headers, "retries": retries})


def test_a_run_that_no_one_knows_has_not_ended(how):
    assert how() == ""


def test_the_letter_of_the_same_run_is_its_end_and_that_of_another_run_is_not(how, dlq):
    dlq.store.letters.save([letter("0d3f", attempt())])
    assert how() == "its end is in the store"
    assert how(run_of(retries=1)) == ""


def test_the_letter_of_a_namesake_is_not(how, dlq):
    dlq.store.letters.save([letter("0d3f", attempt(), task="stock.count")])
    assert how() == ""


def test_a_retry_that_is_parked_is_an_end(how, dlq):
    dlq.store.parked.park([parking("0d3f", 60)], now=datetime.now(timezone.utc))
    assert how() == "its end is in the store"


@pytest.mark.parametrize("closed", [False, True])
def test_the_end_of_an_earlier_message_with_the_same_id_is_not(how, dlq, closed):
    dlq.store.letters.save([letter("0d3f", attempt())])
    if closed:
        earlier = Outcome(
            task_id="0d3f", redrive=1, succeeded_at=T0 + timedelta(hours=1), worker="w"
        )
        dlq.store.letters.record_outcomes([earlier])
    assert how(replace(ACCEPTED, accepted_at=T0 + timedelta(days=1))) == ""


def test_the_end_of_the_same_redrive_is_an_end_whatever_the_clocks_say(how, dlq):
    dlq.store.letters.save([letter("0d3f", attempt(redrive=1))])
    redriven = replace(
        ACCEPTED,
        headers={**ACCEPTED.headers, REDRIVE_HEADER: 1},
        accepted_at=T0 + timedelta(seconds=1),
    )
    assert how(redriven) == "its end is in the store"


def test_a_parked_retry_that_runs_is_not_its_own_end(how, dlq):
    """A worker has accepted its copy, so nothing waits in the store any more."""
    dlq.store.parked.park([parking("0d3f", 60)], now=datetime.now(timezone.utc))
    assert dlq.store.parked.accept([("here.0d3f", 1)]) == [True]
    assert how(run_of(retries=1)) == ""


def test_a_letter_that_a_success_has_closed_is_an_end(how, dlq):
    dlq.store.letters.save([letter("0d3f", attempt(number=5))])
    dlq.store.letters.record_outcomes(
        [Outcome(task_id="0d3f", redrive=0, succeeded_at=datetime.now(timezone.utc), worker="w")]
    )
    assert dlq.store.letters.get("0d3f").state is State.RESOLVED
    assert how() == "its end is in the store"


class Backend:
    def __init__(self, answer, date_done=None):
        self.answer, self.date_done, self.asked = answer, date_done, 0

    def as_uri(self):
        return "redis://"

    def get_task_meta(self, _task_id, cache):
        assert not cache
        self.asked += 1
        if isinstance(self.answer, Exception):
            raise self.answer
        return {"status": self.answer, "date_done": self.date_done}


@pytest.mark.parametrize(
    ("state", "ended"), [("SUCCESS", "it has succeeded"), ("STARTED", ""), ("FAILURE", "")]
)
def test_only_a_success_in_the_result_backend_is_an_end(how, shop_app, monkeypatch, state, ended):
    monkeypatch.setattr(type(shop_app.tasks["shop.charge"]), "backend", Backend(state))
    assert how() == ended


@pytest.mark.parametrize(("seconds", "ended"), [(2, "it has succeeded"), (-3600, "")])
def test_the_success_of_an_earlier_message_with_the_same_id_is_not_an_end(
    how, shop_app, monkeypatch, seconds, ended
):
    done = (ACCEPTED.accepted_at + timedelta(seconds=seconds)).isoformat()
    monkeypatch.setattr(type(shop_app.tasks["shop.charge"]), "backend", Backend("SUCCESS", done))
    assert how() == ended


def test_a_backend_that_is_down_is_asked_once_and_the_letter_says_so(
    shop_app, dlq, how, monkeypatch
):
    backend = Backend(OSError("refused"))
    monkeypatch.setattr(type(shop_app.tasks["shop.charge"]), "backend", backend)
    outcomes = Outcomes(shop_app, dlq.store)
    assert [how(outcomes=outcomes) for _ in range(3)] == ["", "", ""]
    assert backend.asked == 1
    made = outcomes.remarked(letter_of_lost(ACCEPTED, shop_app, dlq))
    assert made.explanation.evidence.endswith(NOT_ASKED)


def test_a_backend_that_cannot_be_made_does_not_stop_the_recovery(shop_app, dlq, how, monkeypatch):
    def fail(_task):
        raise ImproperlyConfigured("no such backend")

    monkeypatch.setattr(type(shop_app.tasks["shop.charge"]), "backend", property(fail))
    assert how() == ""


def test_a_result_that_is_ignored_is_not_asked_for(shop_app, how, monkeypatch):
    backend = Backend("SUCCESS")
    monkeypatch.setattr(type(shop_app.tasks["shop.charge"]), "backend", backend)
    assert how(replace(ACCEPTED, headers={**ACCEPTED.headers, "ignore_result": True})) == ""
    assert backend.asked == 0


def test_the_letter_is_the_same_each_time(shop_app, dlq):
    made = [letter_of_lost(ACCEPTED, shop_app, dlq) for _ in range(2)]
    assert made[0] == made[1]
    assert (made[0].reason, made[0].worker, made[0].pid) == (Reason.LOST, "w@host", 7)
    assert made[0].last_failed_at == ACCEPTED.accepted_at


#: Celery 3's protocol: the body names the task.
OLD = replace(
    ACCEPTED,
    headers={},
    fields={"id": "0d3f", "task": "shop.charge", "retries": 2},
    body=b'{"id": "0d3f", "task": "shop.charge", "retries": 2, "args": [17], "kwargs": {}}',
)


def test_a_message_of_celery_3_is_read_from_its_body(shop_app, dlq):
    made = letter_of_lost(OLD, shop_app, dlq)
    assert (made.task_id, made.task, made.args) == ("0d3f", "shop.charge", [17])
    assert made.attempts[-1].number == 3


def test_if_its_body_must_not_be_unpickled_the_recorder_has_named_it(shop_app, dlq):
    """Otherwise its letter would have another id each time, and the number of its first attempt."""
    message = replace(
        OLD,
        content_type="application/x-python-serialize",
        content_encoding="binary",
        body=b"cos\nabort\n(tR.",
    )
    made = letter_of_lost(message, shop_app, dlq)
    assert (made.task_id, made.task, made.args) == ("0d3f", "shop.charge", None)
    assert made.attempts[-1].number == 3
    assert made.envelope.body == b"cos\nabort\n(tR."


def test_the_evidence_says_whether_the_broker_had_forgotten_it(shop_app, dlq):
    early = replace(ACCEPTED, is_acknowledged=False)
    texts = [letter_of_lost(one, shop_app, dlq).explanation.evidence for one in (ACCEPTED, early)]
    assert texts[0].endswith("it is unknown how far it came")
    assert texts[1].endswith("the broker has not delivered it again")


def test_a_message_that_came_again_has_not_been_lost(how, dlq):
    came = replace(delivery(), started_at=ACCEPTED.accepted_at + timedelta(seconds=5))
    dlq.store.deliveries.put(came)
    assert how() == "the broker has delivered it again, or it has ended"
    dlq.store.deliveries.forget([came])  # it was retried
    assert how() == "the broker has delivered it again, or it has ended"
    assert how(run_of(retries=1)) == ""
