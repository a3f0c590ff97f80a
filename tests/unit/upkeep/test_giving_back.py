"""Which messages of a killed worker are given back, and when."""

from __future__ import annotations

import json
import os
from types import SimpleNamespace

import pytest
from celery import Celery
from kombu import Queue
from support.servers.own_redis import own_redis

from celery_dlq.recorder.files import locked_files
from celery_dlq.recorder.owner import OwnDirectory
from celery_dlq.recorder.tags import Tags, has_noted
from celery_dlq.upkeep.recovery import GiveBack
from celery_dlq.worker.celery_quirks.unacked import Whereabouts
from celery_dlq.worker.celery_quirks.unacked_redis import OnRedis


@pytest.fixture(scope="module")
def url(tmp_path_factory, redis_url):
    with own_redis(tmp_path_factory.mktemp("redis")) as url:
        yield url


@pytest.fixture
def app(url):
    app = Celery("shop", broker=url, set_as_current=False)
    app.conf.task_queues = [Queue("celery")]
    yield app
    app.close()


@pytest.fixture
def killed(app, tmp_path):
    """A worker that received a message, and was killed; it ends at the end of the test."""
    with app.connection_for_read() as connection:
        channel = connection.channel()
        channel.client.flushall()
        own = OwnDirectory(tmp_path / "recorder", "w@host")
        unacknowledged = OnRedis(channel, Tags(own.path, OnRedis.broker_of(channel)))
        app.send_task("shop.charge", task_id="one")
        [queue] = app.amqp.queues.values()
        assert queue(channel).get().delivery_tag in channel.qos._delivered
        yield SimpleNamespace(own=own, channel=channel, unacknowledged=unacknowledged)
        channel.qos._delivered.clear()
        own.close()


def held(killed):
    return killed.channel.client.hlen("unacked")


def run(app, killed):
    with locked_files(killed.own.path) as found:
        return [*GiveBack(app).run(found).values()]


def test_messages_are_given_back_and_the_notes_are_deleted(app, killed):
    killed.own.close()
    assert run(app, killed) == [Whereabouts.GIVEN_BACK]
    assert held(killed) == 0
    assert not has_noted(killed.own.path)
    assert run(app, killed) == []


def test_messages_of_another_broker_stay_for_a_worker_there(app, killed):
    killed.own.close()
    other = Celery("shop", broker=f"{app.conf.broker_url}/7", set_as_current=False)
    assert run(other, killed) == []
    assert held(killed) == 1
    assert run(app, killed) == [Whereabouts.GIVEN_BACK]
    other.close()


def test_nothing_is_given_back_while_the_pool_may_run_it(app, killed):
    killed.own._lock.close()  # the parent is gone
    assert run(app, killed) == []
    assert held(killed) == 1
    killed.own.close()
    assert run(app, killed) == [Whereabouts.GIVEN_BACK]


def test_the_visibility_timeout_decides_about_messages_of_another_machine(app, killed):
    named = killed.own.path / "owner.json"
    killed.own.close()
    data = json.loads(named.read_text())
    named.write_text(json.dumps({**data, "process": f"another-{data['process']}"}))
    os.utime(named, (0, 0))  # it has given no sign of life for long
    with locked_files(killed.own.path) as found:
        assert GiveBack(app).run(found) == {}
        found.finish()
    assert held(killed) == 1
    assert not killed.own.path.exists()


def test_a_broker_that_is_away_is_logged_once(app, killed, caplog, no_pauses):
    killed.own.close()
    away = Celery("shop", broker="redis://127.0.0.1:1/0", set_as_current=False)
    returns = GiveBack(away)
    for _ in range(2):
        with locked_files(killed.own.path) as found:
            assert returns.run(found) == {}
    assert [record.levelname for record in caplog.records] == ["ERROR"]
    assert "cannot be given back now" in caplog.text
    assert has_noted(killed.own.path)
    away.close()


def test_other_brokers_give_back_by_themselves(killed):
    killed.own.close()
    other = Celery("shop", broker="memory://", set_as_current=False)
    assert run(other, killed) == []
    other.close()


def test_without_the_setting_the_visibility_timeout_decides(app, killed):
    killed.own.close()
    with locked_files(killed.own.path) as found:
        assert GiveBack(app, is_on=False).run(found) == {}
    assert held(killed) == 1
    assert not has_noted(killed.own.path)
