from __future__ import annotations

import gc
from types import SimpleNamespace
from unittest.mock import MagicMock

import click
import pytest
from celery.concurrency import prefork, solo, thread

from celery_dlq import DeadLetterQueue
from celery_dlq.errors import SettingsError
from celery_dlq.worker import consumer as module
from celery_dlq.worker.consumer import CaptureStep, LastStep


@pytest.fixture
def frozen(monkeypatch):
    """The number of times that the collector was asked to leave alone what there is."""
    times = []
    monkeypatch.setattr(gc, "freeze", lambda: times.append(True))
    monkeypatch.setattr(module.sys, "setswitchinterval", lambda _seconds: None)
    return times


@pytest.mark.parametrize(
    ("pool", "times"), [(prefork.TaskPool, 1), (solo.TaskPool, 0), (thread.TaskPool, 0)]
)
def test_objects_are_frozen_before_a_pool_forks(app, frozen, pool, times):
    DeadLetterQueue.of(app)
    worker = MagicMock(app=app, pool_cls=pool)
    LastStep(worker).start(worker)
    assert len(frozen) == times


@pytest.mark.parametrize(("forks", "times"), [(True, 1), (False, 0)])
def test_modules_that_were_imported_since_are_frozen_at_the_first_connection(
    frozen, monkeypatch, forks, times
):
    monkeypatch.setattr(module, "_join_channel", lambda _consumer, _before: None)
    monkeypatch.setattr(module, "keep_jobs", lambda _pool: None)
    capture = CaptureStep.__new__(CaptureStep)
    capture._confirming, capture._taker, capture._capture = None, None, MagicMock()
    consumer = SimpleNamespace(timer=MagicMock(), pool=SimpleNamespace(uses_semaphore=forks))
    for _ in range(3):
        capture.start(consumer)
        capture.stop(consumer)
    assert len(frozen) == times


@pytest.mark.parametrize("setting", ["dlq_store_ulr", "dlq_auto_redrive"])
def test_a_wrong_setting_ends_the_command_in_one_line_and_an_embedded_worker_with_its_error(
    app, setting
):
    app.conf.update({setting: [{"name": "nightly"}], "worker_hijack_root_logger": False})
    DeadLetterQueue.of(app)
    with pytest.raises(SettingsError):
        app.WorkController(pool="solo")
    with click.Context(click.Command("worker")), pytest.raises(click.ClickException, match=setting):
        app.WorkController(pool="solo")


def test_threads_begin_after_the_pool_and_an_embedded_beat_have_been_forked(app):
    app.conf.worker_hijack_root_logger = False
    DeadLetterQueue.of(app)
    worker = app.WorkController(pool="prefork", concurrency=1, beat=True)
    order = [type(one).__name__ for one in worker.steps]
    assert {"Pool", "Beat", "UpkeepStep"} <= {*order}
    assert order.index("UpkeepStep") > max(order.index("Pool"), order.index("Beat"))


@pytest.mark.parametrize(("broker", "lines"), [("memory://", 0), ("filesystem://", 1)])
def test_a_worker_says_once_what_its_transport_does_not_cover(app, caplog, broker, lines):
    app.conf.broker_url = broker
    DeadLetterQueue.of(app)
    module._check(app)
    said = [line for line in caplog.messages if "not everything is covered" in line]
    assert len(said) == lines
