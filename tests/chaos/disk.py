"""The spool's disk: small, and its own, so that it can be full."""

from __future__ import annotations

import ctypes
import os
import subprocess
from pathlib import Path

from chaos.servers import ServerError

SIZE = "8m"
#: Linux' number for a set of mounts of one's own.
_CLONE_NEWNS = 0x00020000


class Disk:
    """A file system in memory, which outlives the workers that write to it. This process and its
    children alone see it, so that it is gone with them however they end."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        directory.mkdir(parents=True)
        try:
            _leave_mounts()
            _run("mount", "-t", "tmpfs", "-o", f"size={SIZE},mode=777", "spool", str(directory))
        except OSError as error:
            raise ServerError(
                f"the spool needs a disk of its own that can be full: {error}; "
                "run the kill test as root."
            ) from error

    def fill(self) -> None:
        """Fill it."""
        with self._ballast.open("ab", buffering=0) as file:
            try:
                while True:
                    file.write(bytes(4_096))
            except OSError:
                return

    def clear(self) -> None:
        """Make it empty again."""
        self._ballast.unlink(missing_ok=True)

    def close(self) -> None:
        _run("umount", "--lazy", str(self.directory))  # a process that is dying may hold a file

    @property
    def _ballast(self) -> Path:
        return self.directory / "ballast"


def _leave_mounts() -> None:
    """Keep the mounts of this process and its children to themselves; they are gone with the last of them."""
    if ctypes.CDLL(None, use_errno=True).unshare(_CLONE_NEWNS):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    _run("mount", "--make-rprivate", "/")


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise OSError(done.stderr.strip())
