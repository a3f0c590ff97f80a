"""What a user's own classes leave out of the capture is found, and nothing else is."""

import functools

import pytest
from celery import Celery, Task
from celery.worker.request import Request
from celery.worker.strategy import default

from celery_dlq import DLQTask
from celery_dlq.worker.end.request import DLQRequest
from celery_dlq.worker.uncaptured import dlq_tasks, gaps, other_tasks, own_senders


class LoggingRequest(Request):
    """As in Celery's documentation."""

    def on_failure(self, exc_info, send_failed_event=True, return_ok=False):
        super().on_failure(exc_info, send_failed_event=send_failed_event, return_ok=return_ok)


class SilentRequest(Request):
    def on_failure(self, *args, **kwargs):
        return None


class GoodRequest(DLQRequest):
    def on_failure(self, *args, **kwargs):
        return DLQRequest.on_failure(self, *args, **kwargs)


class SkippingRequest(DLQRequest):
    def on_timeout(self, soft, timeout):
        return None


class NoRequest:
    pass


class Meta(type):
    pass


class OfAnotherMetaclass(Request, metaclass=Meta):
    pass


class Timed:
    """A mixin that calls what it stands before."""

    def __call__(self, *args, **kwargs):
        return super().__call__(*args, **kwargs)


def decorated(call):
    @functools.wraps(call)
    def wrapper(*args, **kwargs):
        return call(*args, **kwargs)

    return wrapper


class Decorated:
    @decorated
    def __call__(self, *args, **kwargs):
        return super().__call__(*args, **kwargs)


class Skipping:
    def __call__(self, *args, **kwargs):
        return self.run(*args, **kwargs)


class SkippingTask(Skipping, Task):
    Request = NoRequest


def found(app, *mixins, **options):
    def body(): ...

    base = type("Base", (*mixins, DLQTask), {}) if mixins else DLQTask
    app.task(body, base=base, name="shop.charge", shared=False, **options)
    app.finalize()
    return [(gap.task, gap.why.split(";")[0], gap.loses_letters) for gap in gaps(app)]


@pytest.mark.parametrize(
    "request_class",
    [
        DLQRequest, Request, LoggingRequest, SilentRequest, GoodRequest, OfAnotherMetaclass,
        "celery.worker.request:Request",
    ],
)  # fmt: skip
def test_a_request_class_that_goes_together_with_ours_is_fine(app, request_class):
    assert found(app, Request=request_class) == []


def test_one_that_does_not_is_told(app):
    [(task, why, loses)] = found(app, Request=NoRequest)
    assert why.startswith("its Request class NoRequest cannot be combined with celery_dlq's")
    assert (task, loses) == ("shop.charge", True)


def test_one_that_derives_from_ours_and_does_not_call_it_is_told(app):
    [(_, why, loses)] = found(app, Request=SkippingRequest)
    assert "on_timeout() of its Request class SkippingRequest does not call super()" in why
    assert loses


@pytest.mark.parametrize("mixin", [Timed, Decorated, Task])
def test_a_call_that_leads_to_ours_is_fine(app, mixin):
    assert found(app, *([] if mixin is Task else [mixin])) == []


def test_one_that_does_not_lead_there_is_told(app):
    [(_, why, loses)] = found(app, Skipping)
    assert why.startswith("its __call__() does not call super().__call__()")
    assert not loses


def test_a_strategy_of_the_users_own_is_told(app):
    def strategy(task, app, consumer):
        return default(task, app, consumer)

    [(_, why, loses)] = found(app, Strategy=strategy)
    assert "it has a Strategy of its own" in why
    assert not loses


def test_tasks_on_another_base_are_not_our_business(app):
    def body(): ...

    app.task(body, base=SkippingTask, name="shop.plain", shared=False)
    assert found(app) == []
    assert [task.name for task in dlq_tasks(app)] == ["shop.charge"]
    assert [task.name for task in other_tasks(app)] == ["shop.plain"]


class Locking(Task):
    def apply_async(self, args=None, kwargs=None, **options):
        return None if self.is_locked else super().apply_async(args, kwargs, **options)


class Unlocking(DLQTask, Locking):
    def apply_async(self, args=None, kwargs=None, **options):
        own = Task if options.get("retries") else super()
        return own.apply_async(self, args, kwargs, **options)


class Behind(DLQTask, Locking): ...


class Waiting(DLQTask):
    def apply_async(self, *args, retries=0, **options):
        return super().apply_async(*args, retries=retries, **options)


class OfAnObject(DLQTask):
    apply_async = functools.partialmethod(DLQTask.apply_async)


def test_tasks_whose_own_apply_async_may_keep_retries_back_are_named():
    app = Celery("unit", set_as_current=False)

    def body(): ...

    for base in (DLQTask, Task, Locking, Behind, Unlocking, Waiting, OfAnObject):
        app.task(body, base=base, name=base.__name__, shared=False)
    app.finalize()
    assert own_senders(app) == ["Behind", "OfAnObject"]
