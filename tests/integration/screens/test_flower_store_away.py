"""A real Flower whose database is frozen or gone: its pages say so, and everything else continues."""

from __future__ import annotations

import contextlib
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from flowers import Guest, flower
from project import wait_for
from proxy import Proxy
from sqlalchemy.engine import make_url
from support.factories import letter
from support.workers.flower_process import end_flower

from celery_dlq.store.sql import SQLStore

pytestmark = [pytest.mark.slow, pytest.mark.service]

Start = Callable[..., contextlib.AbstractContextManager[tuple[Guest, subprocess.Popen[bytes]]]]

LETTERS = "/dead-letters/letters"
PAGES = (
    LETTERS,
    "/dead-letters",
    "/dead-letters/groups",
    "/dead-letters/operations",
    f"{LETTERS}/0d3f",
)


@pytest.fixture
def proxy(postgres_url: str) -> Iterator[Proxy]:
    """A proxy to a database with a letter."""
    store = SQLStore(postgres_url)
    store.letters.save([letter("0d3f")])
    store.close()
    parts = urlsplit(postgres_url)
    proxy = Proxy(parts.hostname or "127.0.0.1", parts.port or 5432)
    yield proxy
    proxy.close()


@pytest.fixture
def start(proxy: Proxy, postgres_url: str, tmp_path: Path) -> Start:
    """Starts a Flower that reaches its database through the proxy."""
    url = make_url(postgres_url).set(port=proxy.port).render_as_string(hide_password=False)

    @contextlib.contextmanager
    def start(patience_s: int = 5) -> Iterator[tuple[Guest, subprocess.Popen[bytes]]]:
        environ = {"CELERY_DLQ_STORE_URL": url, "SHOP_STORE_TIMEOUT": str(patience_s)}
        with flower(tmp_path, "--basic_auth=ann:secret", environ=environ) as (guest, process):
            yield Guest(guest.base, guest.root, ("ann", "secret")), process

    return start


def statuses(visitor: Guest) -> set[int]:
    return {visitor.get(path).status_code for path in PAGES}


def test_pages_say_that_it_is_gone_and_come_back_with_it(start: Start, proxy: Proxy) -> None:
    with start() as (ann, _process):
        assert statuses(ann) == {200}
        proxy.cut()
        try:
            page = ann.get(LETTERS)
            assert (page.status_code, "check dlq_store_url" in page.text) == (503, True)
            assert ann.get(f"{LETTERS}/0d3f").status_code == 503
            assert ann.get("/api/dead-letters").status_code == 503
            for path in ("/tasks", "/metrics", "/healthcheck"):
                assert ann.get(path).status_code == 200
        finally:
            proxy.restore()
        wait_for("the pages", lambda: statuses(ann) == {200})


def test_while_pages_wait_for_it_flower_keeps_answering(start: Start, proxy: Proxy) -> None:
    answers: list[int] = []
    with start(patience_s=120) as (ann, _process):

        def ask(path: str) -> None:
            answers.append(ann.get(path).status_code)

        assert statuses(ann) == {200}
        proxy.hold()
        try:
            asking = [
                threading.Thread(target=ask, args=(f"{LETTERS}?task={n}",)) for n in range(12)
            ]
            for thread in asking:
                thread.start()
            for path in ("/healthcheck", "/tasks", "/healthcheck", "/metrics"):
                assert ann.get(path).status_code == 200
            assert answers == []
        finally:
            proxy.flow()
        for thread in asking:
            thread.join()
    assert answers == [200] * 12


def test_a_page_does_not_wait_for_ever_and_flower_can_be_ended(start: Start, proxy: Proxy) -> None:
    proxy.hold()
    try:
        with start(patience_s=1) as (ann, process):
            assert ann.get(LETTERS).status_code == 503
            end_flower(process)
    finally:
        proxy.flow()
