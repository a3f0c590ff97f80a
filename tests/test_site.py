"""The documentation as a site: every link, heading and page of it is found."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_the_site_is_built_without_a_warning(tmp_path: Path) -> None:
    words = ["-m", "sphinx", "--fail-on-warning", "--nitpicky", "--quiet", "-c", "docs", "."]
    built = subprocess.run(
        [sys.executable, *words, str(tmp_path / "site"), "-d", str(tmp_path / "cache")],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (built.returncode, built.stderr) == (0, "")
    page = (tmp_path / "site/docs/index.html").read_text()
    for title in ("Set up", "Work on dead letters", "About the package"):
        assert page.count(f">{title}<") >= 1
    assert 'href="howto/triage.html"' in page
    assert (tmp_path / "site/searchindex.js").stat().st_size > 100_000
