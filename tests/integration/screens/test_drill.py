"""``dlq drill`` on real brokers and databases, and everything that it removes afterwards."""

import json
import signal
import subprocess
from contextlib import closing
from pathlib import Path

import pytest
from project import wait_for
from sqlalchemy import create_engine, inspect
from support.factories import envelope, letter

from celery_dlq.drill.scenarios import SCENARIOS

pytestmark = [pytest.mark.slow, pytest.mark.service]

MARK = "celery_dlq_drill"


@pytest.fixture
def left(tmp_path):
    """Everything that drills have left on the project's broker, in its store and in its directory."""

    def left(project):
        with project.app.connection_for_write() as connection:
            channel = connection.default_channel
            keys = channel.client.keys(f"*{MARK}*") if "redis" in project.broker else []
        engine = create_engine(project.dlq.store.database.url)
        names = inspect(engine).get_schema_names()
        engine.dispose()
        files = [path for path in tmp_path.rglob("*") if MARK in path.name]
        return [*keys, *(name for name in names if MARK in name), *files]

    return left


def drill(project, *words):
    done = project.run("-q", "dlq", "drill", "--format", "json", *words)
    return done, {one["scenario"]: one for one in json.loads(done.stdout or "[]")}


def only(*names):
    return [word for name in names for word in ("--only", name)]


def with_processes(project):
    """The processes of drills of this project's app."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().split(b"\0")
        except OSError:
            continue
        if b"celery_dlq.drill" in words:
            environ = path.with_name("environ").read_bytes()
            found += [path.parent.name] if project.queue.encode() in environ else []
    return found


@pytest.mark.parametrize(
    ("broker", "store"), [("redis_url", "postgres_url"), ("rabbitmq_url", "mysql_url")]
)
@pytest.mark.nightly
def test_every_scenario_ends_well_and_nothing_is_left(request, make_project, left, broker, store):
    project = make_project(request.getfixturevalue(broker), request.getfixturevalue(store))
    done, found = drill(project)
    assert done.returncode == 0, (done.stdout, done.stderr)
    assert {one["result"] for one in found.values() if one["sent"]} == {"ok"}, found
    sent = {name: found[name]["sent"] for name in SCENARIOS}
    assert sent == {name: scenario.sends for name, scenario in SCENARIOS.items()}
    assert found["redrive-killed"]["done"] == found["redrive-killed"]["sent"] == 20
    assert left(project) == []


def test_what_happens_to_a_message_on_redis_and_postgresql(
    make_project, redis_url, postgres_url, left
):
    project = make_project(f"{redis_url}/9", postgres_url)
    names = ("fail", "kill-process", "unreadable", "broker-cut", "send-cut")
    done, found = drill(project, *only(*names))
    assert done.returncode == 0, (done.stdout, done.stderr)
    assert [name for name in names if found[name]["result"] != "ok"] == []
    assert {name: found[name]["sent"] for name in names} == {
        name: SCENARIOS[name].sends for name in names
    }
    assert (found["fail"]["letters"], found["kill-process"]["sent"]) == (1, 2)
    assert found["send-cut"]["done"] == 3
    assert found["broker-cut"]["done"] + found["broker-cut"]["letters"] == 3
    assert left(project) == []


def test_a_store_in_a_file_is_locked_and_keeps_its_own_letters(project, left):
    project.dlq.store.check_schema()
    project.dlq.store.letters.save([letter("own", envelope=envelope(queue=project.queue))])
    project.settings["dlq_store_timeout"] = 2
    done, found = drill(project, *only("store-cut"))
    assert done.returncode == 0, (done.stdout, done.stderr)
    assert found["store-cut"]["letters"] == 1
    assert project.count() == 1
    assert left(project) == []


def test_a_gap_names_the_setting_that_closes_it(project, left):
    project.settings["worker_pool"] = "threads"
    project.settings["dlq_max_attempts"] = 1
    done, found = drill(project, *only("recover", "kill-process"))
    assert done.returncode == 1
    assert found["recover"]["result"] == "gap"
    assert "dlq_max_attempts is 1" in found["recover"]["text"]
    assert found["kill-process"]["result"] == "left out"
    assert left(project) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_drill_that_is_interrupted_leaves_nothing(project, left, number):
    begun = subprocess.Popen(
        project.command("-q", "dlq", "drill"), env=project.environment, cwd=project.directory,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )  # fmt: skip
    wait_for("its worker", lambda: with_processes(project))
    begun.send_signal(number)
    out, err = begun.communicate(timeout=60)
    assert begun.returncode == 130, err
    assert [line.split()[0] for line in out.splitlines()] == ["Tests"]
    assert "Interrupted." in err
    wait_for("its pool to end", lambda: not with_processes(project))
    assert left(project) == []


def test_workers_end_with_a_drill_that_is_killed(project, tmp_path):
    project.environ["TMPDIR"] = str(tmp_path)
    begun = subprocess.Popen(
        project.command("-q", "dlq", "drill"), env=project.environment, cwd=project.directory,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    wait_for("its worker", lambda: with_processes(project))
    begun.kill()
    begun.wait()
    wait_for("its worker to end", lambda: not with_processes(project))
    # Its queue is left, which no drill can prevent.
    with project.app.connection_for_write() as connection:
        client = connection.default_channel.client
        assert client.delete(*client.keys(f"{MARK}*"))


def test_a_user_without_the_right_to_a_schema_is_told_the_grant(
    make_project, redis_url, postgres_url
):
    engine = create_engine(postgres_url, isolation_level="AUTOCOMMIT")
    with closing(engine.raw_connection()) as raw:
        raw.driver_connection.autocommit = True
        raw.cursor().execute("DROP ROLE IF EXISTS drill_reader")
        raw.cursor().execute("CREATE ROLE drill_reader LOGIN")
    engine.dispose()
    url = engine.url.set(username="drill_reader")
    project = make_project(f"{redis_url}/9", postgres_url)
    project.environ["PROJ_STORE"] = url.render_as_string(hide_password=False)
    done = project.run("dlq", "drill")
    assert done.returncode == 1
    assert f"GRANT CREATE ON DATABASE {url.database} TO drill_reader" in done.stderr


def test_the_broker_is_asked_first(project):
    project.environ["PROJ_BROKER"] = "redis://127.0.0.1:1/0"
    done = project.run("dlq", "drill")
    assert done.returncode == 1
    assert "does not answer" in done.stderr
    assert "Traceback" not in done.stderr
