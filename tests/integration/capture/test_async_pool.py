"""Tasks that are coroutine functions, on celery-aio-pool."""

import pytest
from project import wait_for

from celery_dlq import Reason, State

pytest.importorskip("celery_aio_pool")
pytestmark = [
    pytest.mark.slow, pytest.mark.service, pytest.mark.nightly, pytest.mark.timeout(300),
]  # fmt: skip


def test_bodies_that_a_pool_awaits_are_captured(make_project, redis_url):
    project = make_project(
        f"{redis_url}/9", backend=f"{redis_url}/9", module="proj_async",
        environ={"CELERY_CUSTOM_WORKER_POOL": "celery_aio_pool.pool:AsyncIOPool"},
    )  # fmt: skip
    project.dlq.store.check_schema()
    with project.worker("-P", "custom"):
        succeeds, plain = project.send("waits_async", 1), project.send("terminal", 2)
        terminal, exhausted = project.send("terminal_async", 3), project.send("exhausted_async")
        asks = project.send("asks_async")
        letters = [project.wait_for_letter(one) for one in (terminal, exhausted, asks, plain)]
        assert project.app.AsyncResult(succeeds).get(timeout=30) == 1
        project.fixed.touch()
        done = project.run("dlq", "redrive", terminal, plain, "--yes", "--wait")
        assert "2 succeeded" in done.stdout
        wait_for("the ends", lambda: project.letter(terminal).state is State.RESOLVED)
    assert [letter.reason for letter in letters] == [
        Reason.TERMINAL, Reason.EXHAUSTED, Reason.EXHAUSTED, Reason.TERMINAL,
    ]  # fmt: skip
    assert [len(letter.attempts) for letter in letters] == [1, 3, 2, 1]
    assert letters[0].exception_type == "ValueError"
    assert "await asyncio.sleep" not in letters[0].traceback
    assert project.lines("ran") == [f"{succeeds} 1"]
