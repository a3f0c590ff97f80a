"""The checks that need neither store nor broker, as CI runs them before a deploy."""

import json
import sys
from collections import defaultdict

import pytest
from celery.app.base import Celery
from kombu import Queue

from celery_dlq import AutoRedrive, DLQTask, Filter, Leave, Orders, Repair, Requirements
from celery_dlq.store.database.engine import Database


def refuse(*_given, **_options):
    raise AssertionError("nothing may be asked")


@pytest.fixture
def checked(run, app, monkeypatch):
    """Runs the checks where nothing may be connected to; gives their results by name."""
    app.conf.dlq_store_url = "postgresql://shop@db.invalid/shop"
    monkeypatch.setattr(Database, "read", refuse)
    monkeypatch.setattr(Celery, "control", property(refuse))

    def checked(*words, status=0):
        result = run("doctor", "--static", *words, "--format", "json")
        assert result.exit_code == status, result.output
        found = defaultdict(str)
        for one in json.loads(result.stdout):
            found[one["check"], one["result"]] += one["text"]
        return found

    return checked


def test_nothing_is_asked(checked):
    found = checked()
    assert found["settings", "ok"] == "every dlq_* setting is valid"
    assert {"tasks", "rules", "hooks", "acks"} <= {name for name, _ in found}
    assert {result for _, result in found} <= {"ok", "warning"}


@pytest.mark.parametrize(
    ("name", "value", "check", "said"),
    [
        ("dlq_max_attempts", "many", "settings", "dlq_max_attempts"),
        ("dlq_hooks", {"dead_letter": ["shop.nowhere.tell"]}, "hooks", "shop.nowhere"),
        (
            "dlq_auto_redrive",
            [AutoRedrive("a", where=Filter(task="t"), require=Requirements(new_release=True))],
            "auto", "new_release needs dlq_release, which is not set",
        ),
        (
            "dlq_auto_redrive",
            [
                AutoRedrive(
                    "a", where=Filter(task="t"), orders=Orders(repair=Repair(function="in euros"))
                )
            ],
            "auto", "'a' can never run. orders: 'in euros' is not a repair of this app",
        ),
    ],
)  # fmt: skip
def test_an_error_ends_with_1(checked, app, name, value, check, said):
    app.conf[name] = value
    assert said in checked(status=1)[check, "error"]


def test_warnings_end_with_1_on_request(checked, app, queue):
    app.conf.dlq_auto_redrive = [AutoRedrive("a", where=Filter(task="shop.chrage"))]
    queue.handler(where=Filter(task="shop.chrage"), name="b")(lambda _letter: Leave())
    queue.upgrade("charge", to="2026.12")(lambda *parts: parts)
    found = checked()
    assert found["auto", "warning"].count("'shop.chrage' is not a task of this app") == 2
    said = "@dlq.upgrade names another task: 'charge' is not a task of this app; did you mean"
    assert found["tasks", "warning"].startswith(said)
    assert checked("--fail-on", "warning", status=1) == found


def test_a_broker_without_all_promises_is_a_warning(checked, app):
    app.conf.broker_url = "filesystem://"
    assert "not everything is covered" in checked()["broker", "warning"]


def test_tasks_that_nothing_captures(checked, app):
    @app.task(name="shop.plain", shared=False)
    def plain(): ...

    @app.task(name="shop.late", base=DLQTask, acks_late=True, time_limit=60, shared=False)
    def late(): ...

    assert "shop.plain: another base class, so not captured" in checked()["tasks", "ok"]


def test_a_task_that_may_keep_its_retries_back_is_named(checked, app):
    class Locking(DLQTask):
        def apply_async(self, args=None, kwargs=None, **options):
            return None

    assert "apply_async()" not in checked()["tasks", "ok"]

    @app.task(name="shop.once", base=Locking, shared=False)
    def once(): ...

    found = checked()
    assert "shop.once: retries pass through an apply_async() of your own" in found["tasks", "ok"]


def test_a_default_queue_that_workers_do_not_read_is_a_warning(checked, app):
    app.conf.task_queues = [Queue("mail"), Queue("video")]
    assert checked()["queues", "warning"] == (
        "task_queues does not have the default queue, celery, so a worker without -Q does not read it, and "
        "messages without a route wait there for ever; add it, or set task_default_queue to "
        "one of mail, video"
    )


@pytest.mark.parametrize(
    ("broker", "options", "said"),
    [
        ("redis://", {"visible_timeout": 60}, "'visible_timeout', which kombu does not read; did you mean "
         "'visibility_timeout'?"),
        ("redis://", {"xyzzy": 1}, "'xyzzy', which kombu does not read; correct its name, or remove it"),
        ("amqp://", {"confirm_publishes": True}, "did you mean 'confirm_publish'?"),
    ],
)  # fmt: skip
def test_an_option_that_the_transport_ignores_is_a_warning(checked, app, broker, options, said):
    app.conf.update(broker_url=broker, broker_transport_options=options)
    assert said in checked()["broker", "warning"]


@pytest.mark.parametrize(
    ("broker", "options"),
    [
        ("redis://", "visibility_timeout global_keyprefix priority_steps sep queue_order_strategy "
         "socket_timeout socket_keepalive health_check_interval retry_on_timeout max_connections "
         "fanout_prefix fanout_patterns max_retries interval_start interval_step interval_max"),
        ("sentinel://", "master_name sentinel_kwargs min_other_sentinels visibility_timeout"),
        ("amqp://", "confirm_publish read_timeout write_timeout client_properties max_retries"),
        ("memory://", "polling_interval"),
    ],
)  # fmt: skip
def test_an_option_that_the_transport_reads_is_well(checked, app, broker, options):
    app.conf.update(broker_url=broker, broker_transport_options=dict.fromkeys(options.split(), 1))
    assert not checked()["broker", "warning"]


def test_without_the_brokers_client_the_other_checks_run(checked, app, monkeypatch):
    monkeypatch.setitem(sys.modules, "botocore", None)
    monkeypatch.setitem(sys.modules, "botocore.client", None)
    monkeypatch.delitem(sys.modules, "kombu.transport.SQS", raising=False)
    monkeypatch.setattr("kombu.transport._transport_cache", {})
    app.conf.broker_url = "sqs://"
    found = checked(status=1)
    assert (
        "the client of the broker is missing; run: pip install 'kombu[sqs]'"
        in found["broker", "error"]
    )
    assert "shop.charge: acknowledged before it runs" in found["acks", "ok"]
    assert [check for check, result in found if result == "error" and found[check, result]] == [
        "broker"
    ]
