"""Tasks that Celery's own ``map``, ``starmap`` and ``chunks`` run, in each pool."""

import pytest
from celery import signature
from celery.canvas import chunks, xmap, xstarmap

from celery_dlq import Filter, Reason
from celery_dlq.model.states import State

POOLS = {
    "prefork": ("-P", "prefork", "-c", "2"),
    "threads": ("-P", "threads", "-c", "2"),
    "solo": ("-P", "solo"),
    "gevent": ("-P", "gevent", "-c", "2"),
}

pytestmark = [pytest.mark.slow, pytest.mark.service]


@pytest.fixture(params=["redis", "rabbitmq"])
def broker(request):
    url = request.getfixturevalue(f"{request.param}_url")
    return f"{url}/9" if request.param == "redis" else url


def send(project, kind, name):
    carried = signature(f"proj.{name}", app=project.app)
    items = [17] if kind is xmap else [(17,)]
    if kind is chunks:
        result = chunks(carried, items, 1, app=project.app).group().apply_async()
        return result.results[0].id
    return kind(carried, items, app=project.app).apply_async().id


@pytest.mark.parametrize("pool", POOLS)
def test_each_makes_a_letter_that_a_redrive_resolves(pool, broker, make_project):
    project = make_project(broker)
    with project.worker(*POOLS[pool]):
        sent = [send(project, kind, "terminal") for kind in (xmap, xstarmap, chunks)]
        letters = [project.wait_for_letter(task_id) for task_id in sent]
        exhausted = project.wait_for_letter(send(project, xstarmap, "exhausted"))
        project.fixed.touch()
        project.dlq.redrives.start(Filter(queue=project.queue), who="tester")
        for task_id in [*sent, exhausted.task_id]:
            project.wait_for_letter(task_id, State.RESOLVED)
    assert [one.task for one in letters] == ["celery.map", "celery.starmap", "celery.starmap"]
    assert {one.reason for one in letters} == {Reason.TERMINAL}
    assert (exhausted.reason, len(exhausted.attempts)) == (Reason.EXHAUSTED, 1)
