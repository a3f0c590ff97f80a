"""The doctor about a flight recorder that is off."""

import pytest
from celery.bin.base import CLIContext

from celery_dlq.cli.doctor import Level
from celery_dlq.cli.doctor.broker import check_recorder
from celery_dlq.cli.session import Session

REDIS, RABBITMQ = "redis://127.0.0.1:1/0", "amqp://127.0.0.1:1//"


@pytest.mark.parametrize(
    ("broker", "is_given_back", "warnings"),
    [(REDIS, True, 2), (REDIS, False, 1), (RABBITMQ, True, 1)],
)
def test_it_says_what_a_killed_worker_loses(app, broker, is_given_back, warnings):
    app.conf.update(broker_url=broker, dlq_recorder=False, dlq_restore_unacked=is_given_back)
    found = [*check_recorder(Session(CLIContext(app=app, no_color=True, workdir=None)))]
    assert [finding.level for finding in found] == [Level.WARNING] * warnings
    assert "loses the tasks that it has acknowledged early" in found[0].text
    assert all("dlq_restore_unacked needs it" in finding.text for finding in found[1:])
