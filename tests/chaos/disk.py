"""The spool's disk: small, and its own, so that it can be full."""

from __future__ import annotations

import subprocess
from pathlib import Path

from chaos.servers import ServerError

SIZE = "8m"


class Disk:
    """A file system in memory; it outlives the processes that write to it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        directory.mkdir(parents=True)
        done = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={SIZE},mode=777", "chaos-spool", str(directory)],
            capture_output=True, text=True,
        )  # fmt: skip
        if done.returncode:
            raise ServerError(
                f"the spool needs a disk of its own that can be full: {done.stderr.strip()}; "
                "run the kill test as root."
            )

    def fill(self) -> None:
        """Leave no room."""
        with self._ballast.open("ab", buffering=0) as file:
            try:
                while True:
                    file.write(bytes(4_096))
            except OSError:
                return

    def clear(self) -> None:
        """Give the room back."""
        self._ballast.unlink(missing_ok=True)

    def close(self) -> None:
        # Lazily: a process that is still dying may hold a file.
        subprocess.run(["umount", "--lazy", str(self.directory)], check=True)

    @property
    def _ballast(self) -> Path:
        return self.directory / "ballast"
