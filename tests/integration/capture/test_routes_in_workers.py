"""Real workers put letters on their routes, and call the hooks of routes."""

import pytest
from project import PATIENCE_S, wait_for

from celery_dlq import Filter, Route, State

pytestmark = [pytest.mark.slow, pytest.mark.service]


def told(project) -> list[str]:
    path = project.fixed.with_name("told")
    return path.read_text().split() if path.exists() else []


def test_letters_are_captured_on_their_routes(make_project, redis_url):
    project = make_project(f"{redis_url}/9", module="proj_routes")
    project.app.conf.dlq_routes = [Route("payments", task="proj.terminal", owner="ann")]
    with project.worker("-c", "1"):
        mine, rest = project.send("terminal", 1), project.send("rejects")
        stranger = project.send("nowhere")
        wait_for("the letters", lambda: project.count() == 3)
        wait_for("the hook", lambda: len(told(project)) == 2)
        letters = project.dlq.store.letters
        found = {task_id: letters.get(task_id) for task_id in (mine, rest, stranger)}
        assert [found[one].route for one in (mine, rest, stranger)] == [
            "payments", "rest", "strangers",
        ]  # fmt: skip
        assert found[mine].tags == ("money", "payments")
        assert project.dlq.owner_of(found[mine].route) == "ann"

        project.fixed.touch()
        project.dlq.redrives.start(Filter(route="payments"), who="tester")
        wait_for("the outcome", lambda: letters.get(mine).state is State.RESOLVED)
        assert letters.get(rest).state is State.DEAD
    project.dlq.hooks.finish(PATIENCE_S)
    assert sorted(told(project)) == [
        "dead_letter:payments:team-payments:proj.terminal",
        "new_group:payments:team-payments:proj.terminal",
    ]
