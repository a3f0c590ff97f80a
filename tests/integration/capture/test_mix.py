"""A day's traffic: most succeed, some recover, some die; all are accounted for, and the fix brings the
dead back. ``CELERY_DLQ_MIX`` sets how many tasks (10,000 for the figures in a release note)."""

import os
from collections import Counter

import pytest
from project import wait_for

from celery_dlq import Filter, Reason
from celery_dlq.model.states import State

pytestmark = [pytest.mark.slow, pytest.mark.service, pytest.mark.timeout(1_500)]

TASKS = int(os.environ.get("CELERY_DLQ_MIX", "500"))
SHARES = {"succeed": 0.6, "recovers": 0.2, "terminal": 0.1, "exhausted": 0.1}


@pytest.fixture(params=["redis-postgres", "rabbitmq-mysql"])
def project(request, make_project, urls_of, redis_url):
    project = make_project(*urls_of(request.param), backend=f"{redis_url}/9")
    project.dlq.store.check_schema()
    return project


def send(project):
    sent = {}
    with project.app.producer_or_acquire() as producer:
        for name, share in SHARES.items():
            for number in range(round(TASKS * share)):
                result = project.app.send_task(f"proj.{name}", (number,), producer=producer)
                sent[result.id] = name
    return sent


def letters(project, **wanted):
    found, after = [], None
    while True:
        page = project.dlq.store.letters.find(
            Filter(queue=project.queue, **wanted), limit=500, after=after
        )
        found += page.letters
        after = page.next
        if after is None:
            return found


def succeeded(project, ids):
    """How many of ``ids`` have stored a success, asked of the result backend in one go."""
    backend = project.app.backend
    metas = backend.mget([backend.get_key_for_task(task_id) for task_id in ids])
    return sum(
        meta is not None and backend.decode_result(meta)["status"] == "SUCCESS" for meta in metas
    )


def test_everything_sent_is_done_or_dead_and_the_fix_brings_all_back(project):
    sent = send(project)
    dying = {task_id for task_id, name in sent.items() if name in ("terminal", "exhausted")}
    with project.worker("-c", "4"):
        wait_for("all letters", lambda: project.count() >= len(dying), patience_s=900)
        fine = sent.keys() - dying
        wait_for("all successes", lambda: succeeded(project, fine) == len(fine), patience_s=900)

        dead = letters(project)
        assert Counter(letter.task_id for letter in dead) == Counter(dying), "each letter once"
        assert succeeded(project, sent) + len(dead) == TASKS
        reasons = Counter((letter.task, letter.reason) for letter in dead)
        assert reasons == {
            ("proj.terminal", Reason.TERMINAL): round(TASKS * 0.1),
            ("proj.exhausted", Reason.EXHAUSTED): round(TASKS * 0.1),
        }

        project.fixed.touch()
        done = project.dlq.redrives.start(Filter(queue=project.queue), who="tester")
        assert (done.counts.out, done.counts.left, done.cause) == (len(dying), 0, "")
        wait_for("all to be resolved", lambda: project.count() == 0, patience_s=900)
    resolved = letters(project, states=frozenset({State.RESOLVED}))
    assert {letter.task_id for letter in resolved} == dying
    assert succeeded(project, sent) == TASKS
