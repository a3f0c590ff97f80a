"""DLQTask as Celery's base class: how tasks are registered, configured and called. Real workers are in
tests/integration."""

import pytest
from celery import Celery, Task, shared_task
from celery.app.trace import reset_worker_optimizations
from pydantic import BaseModel
from support.workers.task_tracer import Run

from celery_dlq import (
    DLQTask,
    Reason,
)
from celery_dlq.errors import SettingsError


class Outage(Exception):
    pass


def test_the_apps_settings_are_the_defaults(app):
    app.conf.update(dlq_max_attempts=9, dlq_retry_base=3.0, dlq_retry_cap=4.0, dlq_retry_window=50)

    @app.task(base=DLQTask)
    def call(): ...

    @app.task(base=DLQTask, max_retries=1, retry_backoff=1.5)
    def own(): ...

    app.finalize()
    assert (
        call.max_retries,
        call.retry_backoff,
        call.retry_backoff_max,
        call.dlq_retry_window,
    ) == (8, 3.0, 4.0, 50)
    assert (own.max_retries, own.retry_backoff) == (1, 1.5)


def test_task_annotations_win(app):
    app.conf.task_annotations = {"*": {"max_retries": 1}}

    @app.task(base=DLQTask)
    def call(): ...

    app.finalize()
    assert call.max_retries == 1


def test_hooks_of_the_users_that_forget_super_cost_nothing(app):
    class Own(DLQTask):
        abstract = True

        def on_failure(self, exc, task_id, args, kwargs, einfo):
            pass

    @app.task(base=Own)
    def call():
        raise KeyError

    assert Run(call).failure.reason is Reason.TERMINAL


def test_a_mixin_behind_the_base_keeps_its_call(app):
    class Counting(Task):
        abstract = True
        calls = 0

        def __call__(self, *args, **kwargs):
            type(self).calls += 1
            return super().__call__(*args, **kwargs)

    class Both(DLQTask, Counting):
        abstract = True

    @app.task(base=Both)
    def call():
        raise KeyError

    assert Run(call).failure.reason is Reason.TERMINAL
    assert type(app.tasks[call.name]).calls == 1


def test_a_direct_call_is_a_function_call(app):
    @app.task(base=DLQTask)
    def call():
        raise ConnectionError

    with pytest.raises(ConnectionError):
        call()


def test_a_direct_call_inside_a_task_is_one_too(app):
    @app.task(base=DLQTask, bind=True)
    def call(self, deep=False):
        if deep:
            raise ConnectionError
        try:
            self(deep=True)
        except ConnectionError:
            return "caught"

    run = Run(call)
    assert (run.result.retval, run.message) == ("caught", None)


def test_eager_calls_behave_as_on_the_plain_base(app):
    @app.task(base=DLQTask)
    def fails():
        raise ConnectionError("bank")

    calls = []

    @app.task(base=DLQTask, autoretry_for=(Outage,), max_retries=2)
    def autoretries():
        calls.append(1)
        raise Outage

    assert fails.apply().state == "FAILURE"
    with pytest.raises(ConnectionError):
        fails.apply(throw=True)
    assert isinstance(autoretries.apply().result, Outage)
    assert len(calls) == 3


def test_each_eager_retry_waits_longer(app, monkeypatch):
    @app.task(
        base=DLQTask, bind=True, autoretry_for=(Outage,), max_retries=3,
        retry_backoff=2, retry_jitter=False,
    )  # fmt: skip
    def autoretries(self):
        raise Outage

    asked, retry = [], autoretries.retry
    monkeypatch.setattr(
        autoretries,
        "retry",
        lambda **options: asked.append(options["countdown"]) or retry(**options),
    )
    assert isinstance(autoretries.apply().result, Outage)
    assert asked == [2, 4, 8, 16]


def test_an_eager_exhaustion_is_not_retried_again(app):
    calls = []

    @app.task(base=DLQTask, bind=True, autoretry_for=(Outage,))
    def gives_up(self):
        calls.append(1)
        self.retry(exc=Outage(), max_retries=0)

    assert isinstance(gives_up.apply().result, Outage)
    assert len(calls) == 1


def test_an_eager_call_lets_out_what_would_end_the_process(app):
    @app.task(base=DLQTask)
    def call(exc):
        raise exc

    with pytest.raises(SystemExit):
        call.apply([SystemExit(3)])
    assert isinstance(call.apply([MemoryError("all")]).result, MemoryError)


def test_pydantic_tasks_are_checked_as_ever(app):
    class Order(BaseModel):
        amount: int

    @app.task(base=DLQTask, pydantic=True)
    def charge(order: Order) -> int:
        return order.amount

    assert Run(charge, {"amount": 3}).result.retval == 3
    assert Run(charge, {"amount": "x"}).failure.reason is Reason.TERMINAL


def test_class_based_and_shared_tasks(app):
    class Charge(DLQTask):
        name = "charge"

        def run(self, x):
            raise KeyError(x)

    @shared_task(base=DLQTask, name="shared-charge")
    def shared():
        raise KeyError

    assert Run(app.register_task(Charge()), 1).failure.message == "1"
    app.finalize()
    assert Run(app.tasks["shared-charge"]).failure.reason is Reason.TERMINAL


def test_arguments_are_checked_as_ever(app):
    @app.task(base=DLQTask)
    def call(x): ...

    with pytest.raises(TypeError):
        call.delay()


def test_as_the_apps_task_class_it_leaves_celerys_own_tasks_alone():
    app = Celery("unit", broker="memory://", task_cls=DLQTask, set_as_current=False)
    app.conf.task_ignore_result = True
    app.finalize()
    unlock = app.tasks["celery.chord_unlock"]
    assert isinstance(unlock, DLQTask)
    assert unlock.max_retries is None
    run = Run(app.tasks["celery.map"], None, None)
    assert (run.state, run.failure) == ("FAILURE", None)
    reset_worker_optimizations(app)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"dlq_max_attempts": 0}, "dlq_max_attempts = 0 is not a whole number"),
        ({"dlq_max_atempts": 3}, "'dlq_max_atempts': did you mean 'dlq_max_attempts'"),
        ({"dlq_transient": ["Tiemout"]}, "dlq_transient"),
    ],
)
def test_a_producer_with_a_wrong_setting_says_so_once_and_sends(app, wrong, said, caplog):
    app.conf.update(dlq_release="1.4.2", **wrong)

    @app.task(base=DLQTask)
    def call(): ...

    sent = [call.delay(), call.apply_async(countdown=0), call.s().delay()]
    with app.connection_for_read() as connection:
        queue = connection.SimpleQueue("celery")
        taken = [queue.get(timeout=60).headers["id"] for _ in sent]
        queue.close()
    assert taken == [result.id for result in sent]
    [told] = [record for record in caplog.records if record.name == "celery_dlq"]
    assert told.levelname == "ERROR"
    assert said in told.getMessage()
    assert "check with: celery -A <app> dlq doctor" in told.getMessage()


def test_with_wrong_settings_a_task_has_the_defaults_of_these_and_the_others_as_they_are_set(app):
    app.conf.update(dlq_max_attempts=0, dlq_retry_base=7.0, dlq_retry_cap=8.0)

    @app.task(base=DLQTask)
    def call(): ...

    assert (call.max_retries, call.retry_backoff, call.retry_backoff_max) == (8, 7.0, 8.0)


def test_a_producer_with_right_settings_says_nothing(app, caplog):
    @app.task(base=DLQTask)
    def call(): ...

    call.delay()
    assert [record for record in caplog.records if record.name == "celery_dlq"] == []


class TestRefusedWhenTheTaskIsRegistered:
    @pytest.mark.parametrize(
        ("option", "value", "said"),
        [
            ("dlq_transient", ["Tiemout"], "task.dlq_transient: 'Tiemout' is not an exception"),
            ("dlq_terminal", 7, "task.dlq_terminal = 7 is not a list"),
            ("autoretry_for", (int,), "task.autoretry_for: .* is not an exception"),
            ("throws", None, "task.throws = None is not a list"),
            (
                "dlq_rules",
                ("transient",),
                "dlq_rules = .* is not a list of celery_dlq.Rule objects",
            ),
            ("dlq_rules", None, "dlq_rules = None is not a list of celery_dlq.Rule objects"),
            # A text is a list, too: of its characters. And without a list there could be no letter.
            ("dlq_tags", "money", "dlq_tags = 'money' is not a list of strings"),
            ("dlq_tags", None, "dlq_tags = None is not a list of strings"),
            ("dlq_retry_window", "1h", "dlq_retry_window = '1h' is not a number of seconds"),
        ],
    )
    def test_options_that_make_no_sense(self, app, option, value, said):
        with pytest.raises(SettingsError, match=f"Task shop.charge: {said}"):

            @app.task(name="shop.charge", base=DLQTask, lazy=False, **{option: value})
            def charge():
                return None
