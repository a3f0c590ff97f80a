"""Runs Flower's own tests without and with the tab for dead letters.

Run ``python -m flower_own.run`` with this file's grandparent directory as PYTHONPATH. It ends with 1
when a test ends otherwise with the tab.
"""

from __future__ import annotations

import os
import sys
from importlib.metadata import version

from support.workers.host_suites import run_both, unpacked


def main() -> int:
    """Compare, print, and return the exit code."""
    release = version("flower")
    source = unpacked("flower", release, ("tests/", "docs/config.rst"))
    # It has no settings for pytest, which would find ours further up.
    tests = ["-c", os.devnull, "--rootdir", str(source), "tests/unit"]
    compared = run_both(f"Flower {release}", source, tests, "flower_own.with_tab")
    return compared.report({})


if __name__ == "__main__":
    sys.exit(main())
