"""Servers of a test's own: several that are one database, so that one may fail, or one of a version that the
machine does not have."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import pytest
from chaos.clusters import Cluster
from chaos.servers import Server, ServerError

C = TypeVar("C", bound=Cluster | Server)


@contextlib.contextmanager
def running(kind: Callable[[Path], C]) -> Iterator[C]:
    """A cluster, or a server alone, that serves. Without its programs, the test fails in CI, and is skipped
    elsewhere."""
    with tempfile.TemporaryDirectory() as directory:
        # Servers with users of their own enter it, which they may not do with a test's own directory.
        os.chmod(directory, 0o755)
        with contextlib.ExitStack() as stack:
            try:
                cluster = stack.enter_context(contextlib.closing(kind(Path(directory, "cluster"))))
                cluster.start()
            except ServerError as error:
                if os.environ.get("CI") == "true":
                    raise
                pytest.skip(str(error))
            yield cluster
