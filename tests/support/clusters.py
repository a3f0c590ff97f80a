"""A database of several servers, for a test that lets one of them fail."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import pytest
from chaos.clusters import Cluster
from chaos.servers import ServerError

C = TypeVar("C", bound=Cluster)


@contextlib.contextmanager
def running(kind: Callable[[Path], C]) -> Iterator[C]:
    """A cluster that serves. Without its programs, the test fails in CI, and is skipped elsewhere."""
    with tempfile.TemporaryDirectory() as directory:
        # Servers with users of their own enter it, which they may not do with a test's own directory.
        os.chmod(directory, 0o755)
        with contextlib.closing(kind(Path(directory, "cluster"))) as cluster:
            try:
                cluster.start()
            except ServerError as error:
                if os.environ.get("CI") == "true":
                    raise
                pytest.skip(str(error))
            yield cluster
