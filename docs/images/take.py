"""Takes the pictures of Flower in this documentation: ``make pictures``.

The example project runs in a neutral place, installed as a user installs it, so that tracebacks show no path
of the machine. It needs no server, but Debian's chromium. The pictures are written beside this file.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import time
import venv
from collections.abc import Callable, Iterator
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

from example_project.tax_server import serving

HERE = Path(__file__).parent
CHECKOUT = HERE.parents[1]
CHROMIUM = os.environ.get("CELERY_DLQ_TEST_CHROMIUM", "/usr/bin/chromium")

#: Where the example project is installed and run. The pictures show its paths.
SHOP = Path("/tmp/shop")
CELERY = [SHOP / "venv" / "bin" / "celery", "-A", "example_project.celery_app"]

#: The letters that the first day of the example leaves open.
LETTERS = 10
#: The pages offer acts to a user who is logged in.
USER, PASSWORD = "ann", "secret"
PATIENCE_S = 120
_LOOK_AGAIN_S = 0.2


def main() -> None:
    """Let the example's tasks fail, and take the pictures of its dead letters."""
    try:
        SHOP.mkdir()
    except FileExistsError:
        sys.exit(f"{SHOP} exists, perhaps from a run that was cut off: remove it, then try again")
    try:
        install()
        with serving() as tax_url, running("worker", "--hostname", "worker@shop", tax=tax_url):
            python("-m", "example_project.day")
            wait_for(f"{LETTERS} dead letters", lambda: open_letters() == LETTERS)
            port = free_port()
            options = ("--address=127.0.0.1", f"--port={port}", f"--basic_auth={USER}:{PASSWORD}")
            with running("flower", *options, tax=tax_url):
                wait_for("Flower", lambda: listens(port))
                take(f"http://127.0.0.1:{port}/dead-letters")
    finally:
        shutil.rmtree(SHOP)


def install() -> None:
    """Install the package, and copy the example project."""
    venv.create(SHOP / "venv", with_pip=True)
    python("-m", "pip", "install", "--quiet", "--disable-pip-version-check", f"{CHECKOUT}[flower]")
    shutil.copytree(CHECKOUT / "example_project", SHOP / "example_project")


def take(address: str) -> None:
    """Photograph the groups, and the letter of the largest one."""
    with sync_playwright() as playwright:
        arguments = ["--headless", "--no-sandbox", "--disable-gpu"]
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=arguments)
        page = browser.new_page(
            viewport={"width": 1280, "height": 640},
            reduced_motion="reduce",
            http_credentials={"username": USER, "password": PASSWORD},
        )
        page.goto(f"{address}/groups")
        photograph(page, "flower-groups")
        page.goto(f"{address}/letters?exception=UnknownCurrency")
        page.locator("#dlq-letters tbody a").first.click()
        page.locator("#dlq-why").wait_for()
        photograph(page, "flower-letter")
        browser.close()


def photograph(page: Page, name: str) -> None:
    """Write the whole ``page`` to a file of this ``name``."""
    page.wait_for_load_state("networkidle")
    page.screenshot(path=HERE / f"{name}.png", full_page=True)


def open_letters() -> int:
    """How many letters of the shop are open."""
    command = [*CELERY, "dlq", "groups", "--format", "json"]
    answer = subprocess.run(command, cwd=SHOP, check=True, capture_output=True)
    return sum(group["open_count"] for group in json.loads(answer.stdout))


def python(*words: str) -> None:
    """Run the shop's Python.

    :raises subprocess.CalledProcessError: its exit status is not 0.
    """
    subprocess.run([SHOP / "venv" / "bin" / "python", *words], cwd=SHOP, check=True)


@contextlib.contextmanager
def running(*words: str, tax: str) -> Iterator[None]:
    """A command of Celery's that runs for as long as the block does."""
    with (SHOP / f"{words[0]}.log").open("wb") as log:
        process = subprocess.Popen(
            [*CELERY, *words],
            cwd=SHOP, env={**os.environ, "SHOP_TAX_URL": tax}, stdout=log, stderr=subprocess.STDOUT,
        )  # fmt: skip
    try:
        yield
    finally:
        process.terminate()
        process.wait(PATIENCE_S)


def wait_for(what: str, ready: Callable[[], bool]) -> None:
    """Return once ``ready`` says so.

    :raises SystemExit: it did not in :data:`PATIENCE_S`.
    """
    deadline = time.monotonic() + PATIENCE_S
    while not ready():
        if time.monotonic() > deadline:
            sys.exit(f"waited {PATIENCE_S} s for {what}")
        time.sleep(_LOOK_AGAIN_S)


def free_port() -> int:
    """A port of this machine on which nothing listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def listens(port: int) -> bool:
    """Whether a server answers on ``port``."""
    try:
        socket.create_connection(("127.0.0.1", port), timeout=5).close()
    except OSError:
        return False
    return True


if __name__ == "__main__":
    main()
