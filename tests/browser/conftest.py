"""A real Chromium, a real Flower and a real worker, on Redis and PostgreSQL."""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import (
    Browser,
    BrowserContext,
    ConsoleMessage,
    Page,
    Response,
)
from project import Project, wait_for
from support.chromium import PATIENCE_MS, running_chromium
from support.servers.databases import delete_all
from support.servers.ports import free_port
from support.workers.flower_process import end_flower

from celery_dlq.model.automation import AutoState
from celery_dlq.model.states import State
from celery_dlq.store.base import AuditRow

HERE = Path(__file__).parent

#: Who is logged in.
USER, PASSWORD = "ann", "secret"


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """The browser of one module."""
    with running_chromium() as browser:
        yield browser


class Shop(Project):
    """An app with workers, and its Flower."""

    RESOLVED = State.RESOLVED

    def die(self, task: str, *args: object, **kwargs: object) -> str:
        """Send a task that dies, and wait for its letter; returns its id."""
        task_id = self.send(task, *args, **kwargs)
        self.wait_for_letter(task_id)
        return task_id

    def send(self, task: str, *args: object, **kwargs: object) -> str:
        """Send a task; returns its id."""
        task_id: str = self.app.send_task(task, args, kwargs).id
        self.sent.append(task_id)
        return task_id

    def audited(self, act: str) -> AuditRow:
        """The latest act of this name."""
        [row, *_] = self.dlq.store.audit.find(act=act).rows
        return row

    def start_flower(self, *options: str, **environ: str) -> Flower:
        """A Flower that answers."""
        port = free_port()
        log = self.directory / f"flower-{port}.log"
        with log.open("wb") as file:
            process = subprocess.Popen(
                self.command("flower", "--address=127.0.0.1", f"--port={port}", *options),
                env={**self.environment, **environ}, cwd=self.directory,
                stdout=file, stderr=subprocess.STDOUT,
            )  # fmt: skip
        flower = Flower(process, log, f"http://127.0.0.1:{port}")
        wait_for(f"Flower ({log})", flower.answers)
        return flower


class Flower:
    """A running Flower."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path, url: str) -> None:
        self.process, self.log, self.url = process, log, url

    def answers(self) -> bool:
        """Whether the port accepts connections."""
        assert self.process.poll() is None, self.log.read_text()
        host, port = self.url.removeprefix("http://").split(":")
        try:
            socket.create_connection((host, int(port)), timeout=5).close()
        except OSError:
            return False
        return True

    def stop(self) -> None:
        """End it."""
        end_flower(self.process)


@pytest.fixture(scope="module")
def shop(
    tmp_path_factory: pytest.TempPathFactory, redis_url: str, own_postgres_url: str
) -> Iterator[Shop]:
    """The app, with a worker."""
    project = Shop(
        tmp_path_factory.mktemp("shop"), f"{redis_url}/9", own_postgres_url,
        backend=f"{redis_url}/9", module="shopfront", also=(HERE,),
    )  # fmt: skip
    project.app.task(name="shop.charge", shared=False)(lambda *_args, **_kwargs: None)
    done = project.run("dlq", "db", "upgrade")
    assert done.returncode == 0, done.stderr
    with project.worker("-c", "2", "-E"):
        yield project
    project.close()


@pytest.fixture(autouse=True)
def _empty_store(request: pytest.FixtureRequest) -> None:
    """Each test begins with no letters."""
    shop: Shop = request.getfixturevalue("shop")
    delete_all(shop.dlq.store.database)


@pytest.fixture(scope="module")
def flower(shop: Shop) -> Iterator[Flower]:
    """A Flower with authentication."""
    flower = shop.start_flower(f"--basic_auth={USER}:{PASSWORD}")
    yield flower
    flower.stop()


@pytest.fixture
def open_page(chromium: Browser) -> Iterator[Callable[..., Page]]:
    """Opens pages, each in a browser context of its own."""
    contexts: list[BrowserContext] = []

    def open_page(url: str, **options: object) -> Page:
        contexts.append(chromium.new_context(base_url=url, **options))
        contexts[-1].set_default_timeout(PATIENCE_MS)
        return contexts[-1].new_page()

    yield open_page
    for context in contexts:
        context.close()


@pytest.fixture
def logged_in() -> dict[str, object]:
    """The options of a browser context that has logged in."""
    return {"http_credentials": {"username": USER, "password": PASSWORD}}


@pytest.fixture
def page(
    open_page: Callable[..., Page], flower: Flower, logged_in: dict[str, object]
) -> Iterator[Page]:
    """A page of a logged-in user. An error on it, or a request to another site, fails the test."""
    page = open_page(flower.url, **logged_in)
    troubles = watch(page, flower.url)
    yield page
    assert troubles == []


@pytest.fixture
def seen(shop: Shop, page: Page) -> str:
    """A dead letter whose events Flower has received; it receives them only some time after it starts."""
    letters: list[str] = []

    def is_seen() -> bool:
        letters.append(shop.die("shop.charge", len(letters), currency="EUX"))
        return page.request.get(f"/task/{letters[-1]}").ok

    wait_for("Flower to know the task", is_seen)
    return letters[-1]


@pytest.fixture
def state_of(shop: Shop) -> Callable[[str], AutoState]:
    """Reads the state of an automatic redrive."""
    return lambda name: shop.dlq.store.automations.statuses()[name].state


def _is_trouble(said: ConsoleMessage) -> bool:
    # The console also reports pages whose status is an error, which tests expect.
    return said.type == "error" and not said.text.startswith("Failed to load resource")


def _is_missing(answer: Response) -> bool:
    return answer.status >= 400 and not answer.request.is_navigation_request()


def watch(page: Page, home: str) -> list[str]:
    """The errors in ``page`` from now on."""
    troubles: list[str] = []
    page.on("pageerror", lambda error: troubles.append(f"script: {error}"))
    page.on("console", lambda said: _is_trouble(said) and troubles.append(said.text))
    page.on("response", lambda answer: _is_missing(answer) and troubles.append(answer.url))
    page.on(
        "request",
        lambda request: (
            request.url.startswith((home, "data:")) or troubles.append(f"left home: {request.url}")
        ),
    )
    return troubles
