"""What a letter holds, and when it is written, on real workers. Every way to end is in the matrix."""

import uuid

import pytest
from project import Project, wait_for

from celery_dlq import Filter, Reason, Verdict
from celery_dlq.model.states import State

POOLS = {
    "prefork": ("-P", "prefork", "-c", "2"),
    "threads": ("-P", "threads", "-c", "2"),
    "solo": ("-P", "solo"),
}

pytestmark = [pytest.mark.slow, pytest.mark.service]


@pytest.fixture(params=["redis", "rabbitmq"])
def broker(request: pytest.FixtureRequest) -> str:
    url = request.getfixturevalue(f"{request.param}_url")
    return f"{url}/9" if request.param == "redis" else url


def test_a_letter_has_everything_known_about_its_failure(project):
    with project.worker("-c", "1"):
        task_id = project.app.send_task(
            "proj.terminal", (17,), {"password": "s3cret"}, headers={"tenant": "acme"}, priority=3
        ).id
        letter = project.wait_for_letter(task_id)
        by_place = project.wait_for_letter(project.send("terminal", 17, "s3cret"))
    assert by_place.args == [17, "[redacted]"]
    assert b"s3cret" in by_place.envelope.body
    assert (letter.task, letter.state) == ("proj.terminal", State.DEAD)
    assert (letter.verdict, letter.message) == (Verdict.TERMINAL, "bad currency 17")
    assert letter.args == [17]
    assert letter.kwargs == {"password": "[redacted]"}
    assert "unless_fixed" in letter.traceback
    assert letter.traceback.rstrip().endswith("ValueError: bad currency 17")
    assert "@" in letter.worker
    assert letter.pid
    assert (letter.release, letter.tags) == ("1.4.2", ("money",))
    assert (letter.queue, letter.root_id, letter.correlation_id) == (
        project.queue,
        task_id,
        task_id,
    )
    assert letter.envelope.headers["tenant"] == "acme"
    assert letter.envelope.properties["priority"] == 3
    assert b"s3cret" in letter.envelope.body, "the original is kept for the redrive"
    assert len(letter.fingerprint) == 16
    assert letter.rule
    [attempt] = letter.attempts
    assert (attempt.number, attempt.redrive, attempt.pid) == (1, 0, letter.pid)


def test_two_calls_under_one_id_are_two_letters_and_each_is_redriven(project):
    sent = str(uuid.uuid4())
    with project.worker("-c", "2"):
        for x in (17, 18):
            project.app.send_task("proj.terminal", (x,), task_id=sent)
        wait_for("both letters", lambda: project.count() == 2)
        found = project.dlq.store.letters.find(Filter(queue=project.queue), limit=9).letters
        assert {one.args[0] for one in found} == {17, 18}
        [renamed] = [one for one in found if one.task_id != sent]
        assert f"another message has the id {sent}" in renamed.explanation.evidence
        project.fixed.touch()
        project.dlq.redrives.start(Filter(queue=project.queue), who="tester")
        for one in found:
            project.wait_for_letter(one.task_id, State.RESOLVED)


def test_attempts_tell_the_whole_history(project):
    with project.worker("-c", "1"):
        letter = project.wait_for_letter(project.send("exhausted"))
    assert [a.number for a in letter.attempts] == [1, 2, 3]
    assert [a.exception_type for a in letter.attempts] == ["ConnectionError"] * 3
    assert all(a.verdict is Verdict.TRANSIENT for a in letter.attempts)
    assert all(0 <= a.delay_s <= 0.1 for a in letter.attempts[:2])
    assert letter.attempts[2].delay_s is None
    assert letter.first_failed_at == letter.attempts[0].failed_at < letter.last_failed_at


@pytest.mark.parametrize("pool", [*POOLS, "gevent"])
def test_a_letter_has_the_lines_that_its_last_run_logged(pool, project):
    options = POOLS.get(pool) or ("-P", "gevent", "-c", "10")
    with project.worker(*options):
        ids = [project.app.send_task("proj.logs", (lines,)).id for lines in (2, 60)]
        few, many = map(project.wait_for_letter, ids)
    first, second, said, bank, more = few.log.splitlines()
    assert first.endswith("Z INFO shop: attempt 2, line 0")
    assert second.endswith("Z INFO shop: attempt 2, line 1")
    assert said.endswith("Z WARNING celery.redirected: said aloud 2")
    assert bank.endswith("Z WARNING shop.bank: the bank said password=[redacted]")
    assert more == "    and no more"
    lines = many.log.splitlines()
    assert lines[24:26] == ["(12 lines were not kept)", lines[25]]
    assert lines[23].endswith("line 23")
    assert lines[25].endswith("line 36")
    assert lines[-3].endswith("said aloud 60")
    assert len(lines) == 52


@pytest.mark.parametrize("pool", POOLS)
def test_a_late_acknowledged_task_dies_once_and_is_acknowledged_after_its_letter(
    pool, broker, make_project, tmp_path
):
    project = make_project(broker)
    with project.worker(*POOLS[pool]):
        letter = project.wait_for_letter(project.send("late", 1))
    assert letter.reason is Reason.TERMINAL
    with project.worker(*POOLS[pool]):
        project.wait_for_letter(project.send("late", 2))
    assert (tmp_path / "count-late-1").read_text() == ".", "the first was not delivered again"


def test_a_store_that_is_away_costs_no_letter(project, tmp_path):
    nowhere = "postgresql+psycopg://root@127.0.0.1:1/nowhere"
    away = Project(tmp_path, project.broker, nowhere, queue=project.queue)
    with away.worker("-c", "2"):
        sent = {away.send("terminal", n) for n in range(50)}
        wait_for("the spool", lambda: sum(
            path.read_bytes().count(b"\n") for path in (tmp_path / "spool").glob("*.jsonl")
        ) == 50)  # fmt: skip
    assert project.count() == 0
    with project.worker("-c", "1"):
        wait_for("the spool to be drained", lambda: project.count() == 50)
        wait_for("the spool to be empty", lambda: not list((tmp_path / "spool").glob("*.jsonl")))
    page = project.dlq.store.letters.find(Filter(), limit=100)
    assert {letter.task_id for letter in page.letters} == sent


def test_as_the_apps_task_class_every_task_is_covered(project):
    """``task_cls`` instead of ``base``, in a program of its own: proj.py has ``base``."""
    (project.directory / "whole.py").write_text(
        "from celery import Celery\n"
        "import os\n"
        "app = Celery('whole', broker=os.environ['PROJ_BROKER'], task_cls='celery_dlq:DLQTask')\n"
        "app.conf.update(task_default_queue=os.environ['PROJ_QUEUE'],"
        " dlq_store_url=os.environ['PROJ_STORE'])\n"
        "@app.task(name='proj.terminal')\n"
        "def broken():\n"
        "    raise KeyError('x')\n"
    )
    project.module = "whole"
    with project.worker("-c", "1"):
        assert project.wait_for_letter(project.send("terminal")).exception_type == "KeyError"


def test_a_warm_shutdown_loses_no_letter_that_is_under_way(project):
    with project.worker("-c", "2"):
        sent = [project.send("terminal", n) for n in range(200)]
        wait_for("the first letter", lambda: project.count())
    in_store = project.count()
    with project.app.connection_for_write() as connection:
        waiting = connection.default_channel._size(project.queue)
    assert in_store + waiting == len(sent)


@pytest.mark.parametrize("store", ["postgres", "mysql"])
def test_a_letter_of_a_greenlet_names_the_process_that_it_ran_in(
    store, make_project, redis_url, request
):
    url = request.getfixturevalue(f"{store}_url")
    project = make_project(f"{redis_url}/9", url, backend=f"{redis_url}/9")
    project.dlq.store.check_schema()
    with project.worker("-P", "gevent", "-c", "2") as worker:
        letter = project.wait_for_letter(project.send("hangs"))
    assert letter.reason is Reason.TIMEOUT
    assert (letter.pid, letter.attempts[-1].pid) == (worker.pid, worker.pid)
