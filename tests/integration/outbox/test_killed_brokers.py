"""The broker is killed again and again under a web application: each message that its requests sent has run
once or is a letter, and no request waits long.

``CELERY_DLQ_BROKER_KILLS`` and ``CELERY_DLQ_BROKER_REQUESTS`` set the numbers (``make kill-brokers`` sets
more), and ``CELERY_DLQ_BROKER_PLAIN`` counts what plain Celery loses.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import time

import pytest
from proxy import Proxy
from served import (
    BROKERS,
    HIT,
    KILLS,
    LONG,
    REQUESTS,
    SHORT,
    WEB,
    Customers,
    Workers,
    account_of,
    frozen,
    interrupt,
    kill_one,
    killed,
    quantile,
    wait_until_all_is_quiet,
    web,
)
from sqlalchemy.engine import make_url
from support.servers.clusters import running

pytestmark = [
    pytest.mark.slow, pytest.mark.service, pytest.mark.timeout(600 + 60 * KILLS + REQUESTS / 5),
]  # fmt: skip

#: Seconds after which Redis gives unacknowledged messages back.
VISIBLE_AFTER_S = 10
#: The default of ``dlq_unsent_after``, and by how much the slowest request of a hundred may exceed it. Beside
#: other tests it is more than alone, as ``make kill-brokers`` runs it.
UNSENT_AFTER_S, SLACK_S = 2.0, float(os.environ.get("CELERY_DLQ_BROKER_SLACK_S", "20"))
#: Longer than the worker takes until it says which messages in doubt it took.
DOUBT_S = "25"
#: How long the broker hangs, in seconds.
HANGS_S = (2.0, 8.0)
#: Seconds between two kills of processes of the application.
WEB_LIFE_S = 0.7
#: A test of what plain Celery loses asserts nothing.
IS_PLAIN = bool(os.environ.get("CELERY_DLQ_BROKER_PLAIN"))


@pytest.fixture(params=["redis-postgres", "rabbitmq-postgres", "redis-sqlite"])
def broker(request):
    with running(BROKERS[request.param.partition("-")[0]]) as server:
        yield server


@pytest.fixture
def project(broker, request, make_project, urls_of):
    _, store_url = urls_of(request.node.callspec.params["broker"])
    project = make_project(broker.url, store_url, module="proj_served")
    # The messages that a worker had received from Redis wait for this long.
    transport = {"visibility_timeout": VISIBLE_AFTER_S} if broker.name == "Redis" else {}
    project.environ["PROJ_TRANSPORT"] = json.dumps(transport)
    if IS_PLAIN:
        project.environ["PROJ_PLAIN"] = "yes"
    else:
        project.settings = {"dlq_unsent": "store"}
        if not os.environ.get("CELERY_DLQ_TEST_ALL"):
            project.environ["PROJ_DOUBT_S"] = DOUBT_S
    project.dlq.store.check_schema()
    return project


def play(broker, project, kind, *, meanwhile=lambda _first: None, **how):
    """The account of an application, on gunicorn of this kind, whose broker is away again and again."""
    chance = random.Random(f"{kind} {broker.name}")
    with (
        contextlib.closing(Workers(project, "-c", "4")) as workers,
        web(project, kind) as (port, first),
    ):
        customers = Customers(port)
        outages = interrupt(
            broker, customers, chance, meanwhile=lambda: (workers.revive(), meanwhile(first)), **how,
        )  # fmt: skip
        left = wait_until_all_is_quiet(project, broker, workers)
    account = account_of(project, customers, outages, workers.started, left)
    print(f"\n{os.environ['PYTEST_CURRENT_TEST']}{' plain' * IS_PLAIN}: {account}")
    return account


def check(account):
    if IS_PLAIN:
        return
    assert not account.lost
    assert not account.doubled
    assert not account.both
    assert not account.numbers(500)


def check_seconds(account):
    if not IS_PLAIN:
        assert quantile(account.seconds(HIT, SHORT, LONG), 0.99) <= UNSENT_AFTER_S + SLACK_S


@pytest.mark.parametrize(
    "kind",
    [
        "preload",
        *(
            pytest.param(kind, marks=pytest.mark.nightly)
            for kind in sorted(WEB.keys() - {"preload"})
        ),
    ],
)
def test_each_message_has_run_once_or_is_a_letter(broker, project, kind):
    account = play(broker, project, kind)
    check(account)
    check_seconds(account)
    assert not account.numbers(0)


@pytest.mark.nightly
def test_the_broker_hangs(broker, project):
    account = play(broker, project, "sync", away=frozen, away_s=HANGS_S)
    check(account)
    check_seconds(account)


@pytest.mark.nightly
def test_processes_of_the_application_are_killed_too(broker, project):
    chance, last = random.Random(broker.name), 0.0

    def kill_now_and_then(first):
        nonlocal last
        if time.monotonic() - last > WEB_LIFE_S:
            last = time.monotonic()
            kill_one(first, chance)

    check(play(broker, project, "sync", meanwhile=kill_now_and_then))


@pytest.mark.nightly
def test_the_store_is_away_as_well(broker, project):
    store = make_url(project.store_url)
    if store.host is None:
        pytest.skip("a file is not away")
    proxy = Proxy(store.host, store.port or 5432)
    behind_proxy = store.set(port=proxy.port).render_as_string(hide_password=False)
    project.environ["PROJ_STORE"] = behind_proxy

    @contextlib.contextmanager
    def both_killed(broker):
        proxy.cut()
        with killed(broker):
            yield
        proxy.restore()

    with contextlib.closing(proxy):
        check(play(broker, project, "sync", away=both_killed))
