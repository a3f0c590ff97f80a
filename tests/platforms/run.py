"""Runs the tests that depend on a platform on each of them, and writes the page:
``python -m platforms.run [NAME]...``."""

from __future__ import annotations

import sys
from collections.abc import Iterable

from chaos.servers import ServerError
from platforms.debian import SuiteError
from platforms.page import PAGE, page
from platforms.pytest_run import NotRun
from platforms.results import save, saved
from platforms.table import PLATFORMS


def main(names: list[str]) -> int:
    """The exit status: 0 if everything passed, 1 if not, 2 if a name is unknown."""
    if unknown := sorted(set(names) - set(PLATFORMS)):
        print(f"Unknown: {', '.join(unknown)}. There are: {', '.join(PLATFORMS)}.", file=sys.stderr)
        return 2
    try:
        all_passed = _run(names or PLATFORMS)
    except KeyboardInterrupt:
        print("Interrupted; the platforms before this one have their results.", file=sys.stderr)
        all_passed = False
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8"), saved()), encoding="utf-8")
    return 0 if all_passed else 1


def _run(names: Iterable[str]) -> bool:
    """Whether everything ran and passed."""
    all_passed = True
    for name in names:
        print(f"== {name}", flush=True)
        try:
            for result in PLATFORMS[name]():
                save(result)
                all_passed &= result.failed == 0
        except (NotRun, ServerError, SuiteError) as error:
            print(f"{name}: {error}", file=sys.stderr)
            all_passed = False
    return all_passed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
