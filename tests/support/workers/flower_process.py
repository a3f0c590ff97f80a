"""The end of a Flower that a test has started."""

from __future__ import annotations

import contextlib
import subprocess

_TRIES, _PATIENCE_S = 6, 10


def end_flower(process: subprocess.Popen[bytes]) -> None:
    """End it. Its handler raises SystemExit, which is lost where Python happens to tidy up an object just
    then; so it is told again."""
    for _ in range(_TRIES):
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_PATIENCE_S)
            return
    process.kill()
    process.wait()
    raise AssertionError("Flower did not end")
