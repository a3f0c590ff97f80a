"""The example project does what its README says, on embedded parts and on real servers."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
import yaml
from project import wait_for
from support.factories import letter

from celery_dlq import Filter, Settings
from celery_dlq.store.sql import SQLStore
from example_project import tax_server

ROOT = Path(__file__).parents[2]
COMPOSE = ROOT / "docker-compose.yml"

FIGURES = {
    "orders sent": 21,
    "done as they should": 21,
    "dead-lettered: terminal": 7,
    "dead-lettered: exhausted": 3,
    "redriven": 10,
    "resolved": 10,
    "open": 0,
}


def start_demo(directory: Path, **environment: str) -> subprocess.Popen[str]:
    inherited = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("CELERY_", "SHOP_"))
    }
    return subprocess.Popen(
        [sys.executable, "-m", "example_project.demo"],
        cwd=directory,
        env={**inherited, "PYTHONPATH": str(ROOT), "COLUMNS": "160", **environment},
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True,
    )  # fmt: skip


def run_demo(directory: Path, **environment: str) -> tuple[int, str]:
    process = start_demo(directory, **environment)
    try:
        said, _ = process.communicate(timeout=400)
    finally:
        process.terminate()
    return process.returncode, said


def figures(said: str) -> dict[str, int]:
    """The rows of the summary table."""
    table = said.partition("The day in figures")[2]
    rows = re.findall(r"^ *([^\d\n]+?) +(\d+) *$", table, flags=re.MULTILINE)
    return {name: int(count) for name, count in rows}


def sent_by_itself(said: str) -> int:
    """The letters that the automatic redrive has sent."""
    return len(
        re.findall(r"^\S+ +tax-offices +[0-9a-f]{12} .* done +redrive ", said, flags=re.MULTILINE)
    )


def processes_in(directory: Path) -> list[int]:
    """The ids of the processes that work in ``directory``."""
    found = []
    for link in Path("/proc").glob("[0-9]*/cwd"):
        try:
            if link.readlink() == directory:
                found.append(int(link.parent.name))
        except OSError:
            continue  # has ended since, or is another user's
    return found


def wait_until_left(directory: Path) -> None:
    """What was killed may take a moment to be gone."""
    wait_for(f"{directory} to be left", lambda: processes_in(directory) == [], 10.0)


@pytest.mark.slow
def test_the_demo_ends_with_every_letter_resolved(tmp_path: Path) -> None:
    status, said = run_demo(tmp_path)
    assert status == 0, said
    assert figures(said) == FIGURES
    for command in ("groups", "list", "show", "redrive", "auto history"):
        assert f" celery -A example_project.celery_app dlq {command}" in said
    assert "UnknownCurrency" in said
    assert "KeyError" in said
    assert "9 of 9 attempts used" in said
    assert "tok_" not in said, "a card token was shown"
    assert sent_by_itself(said) == 3
    assert said.count(" in_euros ") == 4
    assert "Sent 3 of 3 dead letters: 3 succeeded." in said
    wait_until_left(tmp_path)
    log = (tmp_path / ".demo" / "worker.log").read_text()
    assert "<HTTPError 503" in log
    (waited,) = re.findall(r"Retry in ([\d.]+)s: <HTTPError 429", log)
    assert float(waited) >= tax_server.RETRY_AFTER_S


@pytest.fixture
def empty_schema(postgres_url: str) -> Iterator[str]:
    """A schema of its own: the demo needs a store without other letters."""
    from sqlalchemy import create_engine, text

    name = f"shop_{uuid.uuid4().hex[:8]}"
    engine = create_engine(postgres_url, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.execute(text(f"CREATE SCHEMA {name}"))
    yield f"{postgres_url}?options=-csearch_path%3D{name}"
    with engine.connect() as connection:
        connection.execute(text(f"DROP SCHEMA {name} CASCADE"))
    engine.dispose()


@pytest.fixture
def empty_redis(redis_url: str) -> Iterator[str]:
    from redis import Redis

    url = f"{redis_url}/14"
    with Redis.from_url(url) as client:
        client.flushdb()
        yield url
        client.flushdb()


@pytest.mark.slow
@pytest.mark.service
def test_the_same_demo_runs_on_redis_and_postgresql(
    tmp_path: Path, empty_redis: str, empty_schema: str
) -> None:
    status, said = run_demo(
        tmp_path,
        CELERY_BROKER_URL=empty_redis,
        CELERY_RESULT_BACKEND=empty_redis,
        CELERY_DLQ_STORE_URL=empty_schema,
    )
    assert status == 0, said
    assert figures(said) == FIGURES
    assert not list((tmp_path / ".demo").glob("*.sqlite3")), "an embedded part was used"


@pytest.mark.slow
def test_the_demo_leaves_the_letters_of_others_alone(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/others.sqlite3"
    store = SQLStore.from_settings(Settings(store_url=url))
    store.check_schema()
    store.letters.save([letter()])
    status, said = run_demo(tmp_path, CELERY_DLQ_STORE_URL=url)
    assert status == 1
    assert "holds 1 open letters already" in said
    assert "worker" not in said
    assert store.counts.letters(Filter()) == 1
    store.close()


@pytest.mark.slow
def test_an_interrupted_demo_takes_its_worker_along(tmp_path: Path) -> None:
    directories = {number: tmp_path / number.name for number in (signal.SIGINT, signal.SIGTERM)}
    demos = {}
    for number, directory in directories.items():
        directory.mkdir()
        demos[number] = start_demo(directory)
    for number, directory in directories.items():
        log = directory / ".demo" / "worker.log"
        wait_for("the worker", lambda log=log: log.exists() and b" ready." in log.read_bytes())
        assert len(processes_in(directory)) > 1
        demos[number].send_signal(number)
    for number, directory in directories.items():
        said, _ = demos[number].communicate(timeout=60)
        assert demos[number].returncode == 130, said
        assert "Traceback" not in said
        wait_until_left(directory)


class TestTaxServer:
    @pytest.fixture
    def url(self) -> Iterator[str]:
        with tax_server.serving() as url:
            yield url

    def rate(self, url: str, country: str) -> Mapping[str, str]:
        with urlopen(f"{url}/rates/{country}", timeout=5) as answer:
            return json.load(answer)

    def refusal(self, url: str, country: str) -> tuple[int, str | None]:
        with pytest.raises(HTTPError) as caught:
            self.rate(url, country)
        with caught.value as error:
            return error.code, error.headers["Retry-After"]

    def test_a_fine_office_answers(self, url: str) -> None:
        assert self.rate(url, "DE") == {"country": "DE", "rate": "0.19"}

    def test_a_busy_office_recovers(self, url: str) -> None:
        assert [self.refusal(url, "FR") for _ in range(2)] == [(503, None)] * 2
        assert self.rate(url, "FR")["rate"] == "0.20"

    def test_a_throttled_office_says_when_to_come_back(self, url: str) -> None:
        assert self.refusal(url, "IT") == (429, "1")
        assert self.rate(url, "IT")["rate"] == "0.22"

    def test_an_office_that_is_down_hangs_up_until_its_mood_is_changed(self, url: str) -> None:
        for _ in range(6):
            with pytest.raises(ConnectionError):
                self.rate(url, "GR")
        urlopen(Request(f"{url}/moods/GR", data=b"fine", method="PUT"), timeout=5).close()
        assert self.rate(url, "GR")["rate"] == "0.24"

    def test_an_unknown_country_is_not_found(self, url: str) -> None:
        assert self.refusal(url, "XX")[0] == 404


class TestCompose:
    @pytest.fixture
    def services(self) -> Mapping[str, Mapping[str, object]]:
        return yaml.safe_load(COMPOSE.read_text())["services"]

    def test_it_starts_everything_that_the_shop_and_its_monitoring_need(self, services) -> None:
        shop = {"broker", "database", "migrate", "tax", "worker"}
        assert set(services) == shop | {"flower", "exporter", "prometheus", "grafana"}

    def test_mounted_directories_exist(self, services) -> None:
        mounts = [mount for service in services.values() for mount in service.get("volumes", ())]
        own = [mount.split(":")[0] for mount in mounts if mount.startswith("./")]
        assert own
        assert all((ROOT / path).is_dir() for path in own)

    def test_every_service_that_stays_up_has_a_health_check(self, services) -> None:
        silent = {name for name, service in services.items() if "healthcheck" not in service}
        assert silent == {"migrate"}

    def test_services_wait_for_those_they_need(self, services) -> None:
        for service in services.values():
            for name, how in service.get("depends_on", {}).items():
                once = how["condition"] == "service_completed_successfully"
                assert how["condition"] == "service_healthy" or once
                assert once == ("healthcheck" not in services[name])

    def test_every_port_can_be_moved_and_is_published_locally(self, services) -> None:
        ports = [port for service in services.values() for port in service.get("ports", ())]
        assert ports
        assert all(re.fullmatch(r"127\.0\.0\.1:\$\{[A-Z]+_PORT:-\d+\}:\d+", port) for port in ports)

    def test_the_image_has_what_the_services_need(self, services) -> None:
        dockerfile = (ROOT / services["worker"]["build"]["dockerfile"]).read_text()
        extras = re.search(r"'\.\[(.+)\]'", dockerfile)
        assert extras
        assert set(extras[1].split(",")) == {"postgres", "redis", "flower", "prometheus"}
        for source in re.findall(r"^COPY (.+) \S+$", dockerfile, flags=re.MULTILINE):
            assert all((ROOT / name).exists() for name in source.split())

    def test_docker_accepts_it(self) -> None:
        docker = shutil.which("docker")
        words = [docker or "docker", "compose"]
        if not docker or subprocess.run([*words, "version"], capture_output=True).returncode:
            pytest.skip("there is no docker compose here; the tests above read the file themselves")
        checked = subprocess.run(
            [*words, "-f", str(COMPOSE), "config", "--quiet"], capture_output=True, text=True
        )
        assert checked.returncode == 0, checked.stderr
