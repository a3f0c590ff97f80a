"""Debian's Chromium; Playwright's own downloads are not needed."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from playwright.sync_api import Browser, expect, sync_playwright

PROGRAM = os.environ.get("CELERY_DLQ_TEST_CHROMIUM", "/usr/bin/chromium")
ARGUMENTS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
)  # fmt: skip

#: Milliseconds that a test waits for something on a page.
PATIENCE_MS = 60_000


@contextmanager
def running_chromium() -> Iterator[Browser]:
    """A browser. While it runs, no other test can run an event loop."""
    if not shutil.which(PROGRAM):
        message = f"no browser at {PROGRAM}: apt-get install chromium"
        pytest.fail(message) if os.environ.get("CI") == "true" else pytest.skip(message)
    with sync_playwright() as playwright:
        expect.set_options(timeout=PATIENCE_MS)
        browser = playwright.chromium.launch(
            executable_path=PROGRAM, args=ARGUMENTS, timeout=PATIENCE_MS
        )
        yield browser
        browser.close()
