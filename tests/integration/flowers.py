"""Real Flowers, and a visitor who sends requests to them."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pytest
from support.servers.ports import free_port
from support.workers.flower_process import end_flower

ROOT = Path(__file__).parents[2]

SHOP = """
import os
from celery import Celery
from celery_dlq import DLQTask

app = Celery("shop", broker="memory://")
app.conf.dlq_store_timeout = float(os.environ.get("SHOP_STORE_TIMEOUT", "5"))

@app.task(base=DLQTask, name="shop.charge")
def charge(order_id): ...
"""


@dataclass
class Guest:
    """Sends requests to a Flower; keeps cookies only if it plays a browser."""

    base: str
    root: str
    auth: tuple[str, str] | None = None
    cookies: dict[str, str] = field(default_factory=dict)

    def get(self, path: str) -> httpx.Response:
        with self._client() as client:
            return client.get(f"{self.root}{path}")

    def redrive(self, task_id: str, headers: dict[str, str] | None = None) -> int:
        """Redrive by REST; returns the status."""
        with self._client() as client:
            path = f"{self.root}/api/dead-letters/redrive"
            return client.post(path, json={"id": task_id}, headers=headers or {}).status_code

    def discard(self, task_id: str, *, proven: bool = True) -> int:
        """Discard as a browser does, from the letter's page; returns the status."""
        with self._client() as client:
            address = f"{self.root}/dead-letters/letters/{task_id}"
            page = client.get(address)
            form = page.text.partition('class="dlq-form dlq-letter-acts"')[2].partition("</form>")[
                0
            ]
            fields = dict(re.findall(r'name="(\w+)" value="([^"]*)"', form))
            if not proven:
                fields.pop("_xsrf", None)
            headers = {"Origin": self.base, "Sec-Fetch-Site": "same-origin"}
            sent = {**fields, "why": "test"}
            return client.post(f"{address}/discard", data=sent, headers=headers).status_code

    def token(self) -> str:
        """The token that a page gives to a browser."""
        with self._client() as client:
            client.get(f"{self.root}/dead-letters/letters")
            self.cookies |= dict(client.cookies)
        return self.cookies["_xsrf"]

    def _client(self) -> httpx.Client:
        return httpx.Client(
            base_url=self.base, auth=self.auth, cookies=self.cookies, timeout=60, trust_env=False
        )


@contextlib.contextmanager
def flower(
    directory: Path,
    *options: str,
    root: str = "",
    environ: Mapping[str, str] | None = None,
    path: Sequence[Path] = (),
) -> Iterator[tuple[Guest, subprocess.Popen[bytes]]]:
    """A Flower over the shop, once it answers, and a visitor whom it does not know.

    :param root: the prefix of its addresses.
    :param path: where modules are looked for first.
    """
    (directory / "shop.py").write_text(SHOP)
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("FLOWER_")},
        "PYTHONPATH": os.pathsep.join(map(str, [*path, ROOT, directory])), **(environ or {}),
    }  # fmt: skip
    port = free_port()
    log = directory / "flower.log"
    with log.open("wb") as file:
        process = subprocess.Popen(
            [sys.executable, "-m", "celery", "-A", "shop", "flower", "--address=127.0.0.1",
             f"--port={port}", *options],
            cwd=directory, env=environment, stdout=file, stderr=subprocess.STDOUT,
        )  # fmt: skip
    try:
        guest = Guest(f"http://127.0.0.1:{port}", root)
        _await(process, guest, log)
        yield guest, process
        assert "Traceback" not in log.read_text(), log.read_text()
    finally:
        end_flower(process)


def _await(process: subprocess.Popen[bytes], guest: Guest, log: Path) -> None:
    end = time.monotonic() + 120
    while time.monotonic() < end:
        assert process.poll() is None, log.read_text()
        try:
            if guest.get("/healthcheck").status_code == 200:
                return
        except httpx.TransportError:
            time.sleep(0.1)
    pytest.fail(log.read_text())
