from __future__ import annotations

from pathlib import Path

import pytest
from project import Project


@pytest.fixture
def project(tmp_path: Path, redis_url: str) -> Project:
    """Redis and SQLite: the quickest to have."""
    return Project(tmp_path, f"{redis_url}/9", f"sqlite:///{tmp_path}/store.sqlite3", f"{redis_url}/9")
