"""The doctor's findings about acknowledgement."""

import pytest
from celery.bin.base import CLIContext

from celery_dlq.cli.doctor import Level
from celery_dlq.cli.doctor.broker import check_acks
from celery_dlq.cli.session import Session
from celery_dlq.worker.task import DLQTask

REDIS, RABBITMQ, MEMORY = "redis://127.0.0.1:1/0", "amqp://127.0.0.1:1//", "memory://"
SQS = "sqs://key:secret@"
NOT_RENEWED = {"dlq_restore_unacked": False}


@pytest.fixture
def found(app):
    """The findings for one task with these options."""

    def found(broker=MEMORY, conf=(), **options):
        app.conf.broker_url = broker
        app.conf.update(conf)
        del app.tasks["shop.charge"]

        @app.task(name="shop.slow", base=DLQTask, shared=False, **options)
        def slow(): ...

        findings = check_acks(Session(CLIContext(app=app, no_color=True, workdir=None)))
        return [(finding.level, finding.text) for finding in findings]

    return found


def test_late_acknowledgement_within_the_time_limit_is_ok(found):
    [(level, _)] = found(REDIS, acks_late=True, time_limit=60)
    assert level is Level.OK


def test_without_tasks_there_is_nothing_to_say(app):
    del app.tasks["shop.charge"]
    session = Session(CLIContext(app=app, no_color=True, workdir=None))
    assert list(check_acks(session)) == []


@pytest.mark.parametrize(
    ("broker", "options", "said"),
    [
        (MEMORY, {"dlq_recorder": False}, "so a killed worker loses it without a letter"),
        (REDIS, {"acks_on_failure": False}, "then Redis drops it"),
        (RABBITMQ, {"acks_on_failure_or_timeout": False}, "dead-letter exchange"),
        (MEMORY, {"acks_on_failure": False}, "the broker decides"),
        (MEMORY, {"acks_on_timeout": False}, "dlq_max_deliveries (3) times"),
        (MEMORY, {"retry_on_worker_lost": True}, "takes precedence over reject_on_worker_lost"),
        (REDIS, {"time_limit": None, **NOT_RENEWED}, "is started again while it continues"),
        (REDIS, {"time_limit": 3_600, **NOT_RENEWED}, "below 1h (visibility_timeout)"),
        (RABBITMQ, {"time_limit": 1_800}, "ends its worker"),
    ],
)
def test_options_that_lose_or_repeat_a_message_are_warnings(found, broker, options, said):
    conf = {key: options.pop(key) for key in [*options] if key.startswith("dlq_")}
    late = {"acks_late": bool(options), "time_limit": 60, **options}
    findings = found(broker, conf, **late)
    assert {level for level, _ in findings} == {Level.WARNING}
    assert any(said in text for _, text in findings), findings


def test_with_the_flight_recorder_a_killed_worker_leaves_a_letter(found):
    [(level, text)] = found()
    assert (level, text.partition(";")[0]) == (
        Level.OK, "shop.slow: acknowledged before it runs, so if its worker is killed, the flight recorder "
        "makes it a letter, and it does not run again",
    )  # fmt: skip
    assert "loses it without a letter" not in text


def test_options_for_late_acknowledgement_do_not_warn_on_early_tasks(found):
    [(_, text)] = found(REDIS, acks_on_failure=False, acks_on_timeout=False)
    assert "acknowledged before it runs" in text


@pytest.mark.parametrize("broker", [REDIS, SQS])
def test_a_task_of_any_length_stays_with_its_worker(found, broker):
    [(level, text)] = found(broker, acks_late=True, time_limit=None)
    assert (level, text) == (
        Level.OK, "every task is acknowledged after it runs, and none repeats without end"
    )  # fmt: skip


@pytest.mark.parametrize(("hidden_s", "level"), [(3_600, Level.OK), (60, Level.WARNING)])
def test_the_apps_configuration_counts(found, hidden_s, level):
    conf = {
        **NOT_RENEWED,
        "task_acks_late": True,
        "task_time_limit": 60,
        "broker_transport_options": {"visibility_timeout": hidden_s},
    }
    assert [found_level for found_level, _ in found(REDIS, conf)] == [level]
