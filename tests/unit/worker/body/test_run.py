"""``self.dlq``: what the body of a task knows about its run."""

import pickle
import uuid
from dataclasses import FrozenInstanceError, replace
from datetime import timedelta

import pytest
from celery.app.task import Context
from support.factories import T0, attempt
from support.workers.task_tracer import Run as TracedRun

from celery_dlq import CeleryDLQError, DLQTask, Run
from celery_dlq.errors import NoMessage
from celery_dlq.model.headers import (
    ATTEMPTS_HEADER,
    FIRST_FAILED_HEADER,
    LETTER_HEADER,
    REDRIVE_HEADER,
)
from celery_dlq.worker.failure import write_attempts

LATER = T0 + timedelta(days=1)


@pytest.fixture
def charge(app):
    @app.task(base=DLQTask, bind=True, name="shop.charge")
    def charge(self, *args):
        noted.append(self.dlq)

    noted = charge.noted = []
    return charge


def run_of(charge, *args, **request):
    """What the body saw in a run by Celery's tracer."""
    assert TracedRun(charge, *args, **request).state == "SUCCESS"
    return charge.noted.pop()


def make(**values):
    given = {
        "task": "shop.charge",
        "task_id": "4711",
        "redrive": 0,
        "attempt": 1,
        "first_failed_at": None,
    }
    return Run(**{**given, **values})


def test_the_key_never_changes():
    """Services remember the keys of earlier releases."""
    assert make().key == "7b4f0fcf-95b3-5133-b969-062988b11042"
    assert len(make().key) == 36


def test_the_key_is_that_of_the_task_and_the_message(charge):
    assert run_of(charge).key == make().key
    assert make(task_id="4712").key != make().key
    assert make(task="shop.refund").key != make().key
    assert make(task="a", task_id="b\0c").key == str(uuid.UUID(make(task="a", task_id="b\0c").key))


def test_the_key_stays_in_retries_and_redrives_and_with_other_arguments(charge):
    again = {
        run_of(charge, "other arguments").key,
        run_of(charge, retries=3, headers={ATTEMPTS_HEADER: write_attempts([attempt(1)])}).key,
        run_of(charge, headers={REDRIVE_HEADER: 2, FIRST_FAILED_HEADER: T0.isoformat()}).key,
    }
    assert again == {make().key}


def test_a_first_run_has_no_history(charge):
    assert run_of(charge) == make()


def test_a_retry_knows_its_number_and_the_first_failure(charge):
    tried = [attempt(1, failed_at=T0), attempt(2, failed_at=LATER)]
    run = run_of(charge, retries=2, headers={ATTEMPTS_HEADER: write_attempts(tried)})
    assert run == make(attempt=3, first_failed_at=T0)


def test_a_redrive_knows_the_failure_before_it_and_its_letter(charge):
    headers = {REDRIVE_HEADER: 2, FIRST_FAILED_HEADER: T0.isoformat()}
    redriven = make(redrive=2, first_failed_at=T0, letter="4711")
    assert run_of(charge, headers=headers) == redriven
    retried = {**headers, ATTEMPTS_HEADER: write_attempts([attempt(1, failed_at=LATER)])}
    assert run_of(charge, retries=1, headers=retried) == replace(redriven, attempt=2)
    named = {**headers, LETTER_HEADER: "kept-as"}
    assert run_of(charge, headers=named) == replace(redriven, letter="kept-as")
    assert run_of(charge, headers={LETTER_HEADER: "of no redrive"}).letter is None


def test_the_request_knows_the_run_too(app):
    runs = []

    @app.task(base=DLQTask, bind=True, name="shop.charge")
    def charge(self):
        assert self.request.dlq == self.dlq
        assert isinstance(self.request, Context)
        # It is not one of the message's headers.
        assert set(self.request.headers or ()) <= {"dlq", REDRIVE_HEADER}
        runs.append(self.request.dlq)

    assert TracedRun(charge, headers={REDRIVE_HEADER: 1}).state == "SUCCESS"
    assert TracedRun(charge, headers={"dlq": "a sender's"}).state == "SUCCESS"
    charge.apply(task_id="4712")
    charge()
    assert [(run.letter, run.redrive, run.task_id) for run in runs] == [
        ("4711", 1, "4711"), (None, 0, "4711"), (None, 0, "4712"), (None, 0, None),
    ]  # fmt: skip


def test_a_request_can_be_pickled_once_it_knows_its_run(app):
    @app.task(base=DLQTask, bind=True, name="shop.charge")
    def charge(self):
        return pickle.loads(pickle.dumps(self.request))

    copy = charge.apply(task_id="4711").get()
    assert (type(copy), copy.id) == (Context, "4711")


def test_a_request_of_the_users_own_class_stays_as_it_is(app):
    class Own(Context):
        dlq = "theirs"

    @app.task(base=DLQTask, name="shop.charge")
    def charge(): ...

    charge.request_stack.push(Own())
    try:
        assert charge.request.dlq == "theirs"
    finally:
        charge.request_stack.pop()


def test_the_redrive_of_an_earlier_release_knows_the_failures_since(charge):
    headers = {REDRIVE_HEADER: 1, ATTEMPTS_HEADER: write_attempts([attempt(1, failed_at=LATER)])}
    assert run_of(charge, retries=1, headers=headers).first_failed_at == LATER


def test_an_eager_call_has_the_key_of_its_id(charge):
    charge.apply(task_id="4711")
    assert charge.noted == [make()]
    charge.apply()
    assert charge.noted.pop().key != make().key


def test_a_retry_of_an_eager_call_has_the_same_key(app):
    runs = []

    @app.task(base=DLQTask, bind=True, autoretry_for=(OSError,), retry_backoff=False)
    def call(self):
        runs.append(self.dlq)
        if self.dlq.attempt == 1:
            raise OSError

    assert call.apply().successful()
    assert [run.attempt for run in runs] == [1, 2]
    assert runs[0].key == runs[1].key


def test_a_direct_call_has_no_key_and_says_what_to_do(charge):
    charge()
    [run] = charge.noted
    assert run == make(task_id=None)
    with pytest.raises(
        NoMessage, match=r"shop\.charge runs without .* call it with apply\(\)"
    ) as caught:
        _ = run.key
    assert isinstance(caught.value, CeleryDLQError)


def test_an_item_of_map_has_no_message_of_its_own(app, charge):
    app.finalize()
    assert TracedRun(app.tasks["celery.map"], charge.s(), [1, 2]).state == "SUCCESS"
    assert charge.noted == [make(task_id=None)] * 2


def test_a_direct_call_of_the_same_task_is_part_of_the_run_as_its_request_is_for_celery(app):
    runs = []

    @app.task(base=DLQTask, bind=True, name="shop.charge")
    def call(self, again=True):
        runs.append(self.dlq)
        if again:
            self(again=False)

    TracedRun(call)
    assert runs == [make(), make()]


@pytest.mark.parametrize("task_id", ["", " "])
def test_a_blank_id_is_no_id(charge, task_id):
    charge.push_request(id=task_id)
    assert charge.dlq.task_id is None
    charge.pop_request()


def test_a_producer_sees_a_run_without_a_message(charge):
    assert charge.dlq == make(task_id=None)


def test_it_cannot_be_changed(charge):
    with pytest.raises(FrozenInstanceError):
        charge.dlq.redrive = 1
    with pytest.raises(AttributeError):
        charge.dlq = None


def test_a_class_of_the_user_may_have_an_attribute_of_that_name(app):
    class Own(DLQTask):
        dlq = "theirs"

    @app.task(base=Own, bind=True)
    def call(self):
        return self.dlq

    assert TracedRun(call).result.retval == "theirs"


def test_a_run_that_does_not_ask_pays_nothing(app, monkeypatch):
    @app.task(base=DLQTask)
    def call(): ...

    monkeypatch.setattr(Run, "of", pytest.fail)
    assert TracedRun(call, retries=1, headers={REDRIVE_HEADER: 1}).state == "SUCCESS"
