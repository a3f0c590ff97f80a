"""Debian's suites, each in a directory of its own. They have servers and Pythons that this machine lacks.

A program in a suite runs in mount and process namespaces of its own: when it ends, or the run that started
it, all that it has started ends, too, and nothing stays mounted.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from platforms.results import CACHE
from support.workers.processes import with_parent

#: Debian's mirror, if the machine has no sources of its own.
_MIRROR = "http://deb.debian.org/debian/"

#: Arguments: the suite's directory, a directory that is seen at the same place inside, the user's ids, and
#: the command. The shell stays: a process that changes its user is no longer killed with its parent, but it
#: ends with the first process of its namespace.
_ENTER = """
mount -t proc proc "$1/proc"
mount -t tmpfs tmpfs "$1/dev/shm"
mount -t devpts -o newinstance,ptmxmode=0666 devpts "$1/dev/pts"
ln -sf pts/ptmx "$1/dev/ptmx"
mount -t tmpfs tmpfs "$1/tmp"
mkdir -p "$1$2"
mount --bind "$2" "$1$2"
root=$1 user=$3
shift 3
PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
export PATH
chroot --userspec="$user" "$root" "$@" || exit
"""

#: Files of this machine that programs in a suite need: for names, and for HTTPS.
_COPIED = ("/etc/resolv.conf", "/etc/hosts", "/etc/ssl/certs/ca-certificates.crt")


class SuiteError(Exception):
    """A suite cannot be set up, or a package cannot be installed in it."""


class Suite:
    """A suite of Debian, such as ``trixie``."""

    def __init__(self, name: str, cache: Path = CACHE) -> None:
        self.name = name
        self.root = cache / name

    def install(self, *packages: str) -> None:
        """Set the suite up if it is missing, and install the newest version that it has of each package.

        :raises SuiteError: it cannot be done.
        """
        self.root.parent.mkdir(parents=True, exist_ok=True)
        with self.root.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # another run may need the suite, too
            self._set_up()
            self._run(self.inside(["apt-get", "update", "-qq"]))
            install = ["apt-get", "install", "-yqq", "--no-install-recommends"]
            self._run(self.inside([*install, *packages]))
            # A package may have written them.
            _copy_files(self.root)

    def inside(
        self, command: Sequence[str], directory: Path | None = None, user: str = "root"
    ) -> list[str]:
        """``command``, to be run in the suite as ``user``, killed when this run ends however it may.

        :param directory: is at the same place inside.
        """
        seen = self.root / "srv" if directory is None else directory
        ids = ":".join(map(str, self.ids_of(user)))
        return [
            *isolated(["sh", "-euc", _ENTER, "sh"]), str(self.root), str(seen), ids, *command,
        ]  # fmt: skip

    def ids_of(self, user: str) -> tuple[int, int]:
        """The ids of a user and its group inside.

        :raises SuiteError: there is no such user.
        """
        for line in (self.root / "etc/passwd").read_text().splitlines():
            name, _, uid, gid, *_ = line.split(":")
            if name == user:
                return int(uid), int(gid)
        raise SuiteError(
            f"{self.name} does not have the user {user}; its package is not installed."
        )

    def _set_up(self) -> None:
        if self.root.exists():
            return
        if os.geteuid() != 0:
            raise SuiteError("Only root can set up a suite of Debian; run make as root.")
        self._have_debootstrap()
        # It gets its name only when it is complete.
        with tempfile.TemporaryDirectory(
            dir=self.root.parent, prefix="unfinished-", ignore_cleanup_errors=True
        ) as beside:
            new = Path(beside, self.name)
            self._run(isolated(["debootstrap", "--variant=minbase", self.name, str(new), mirror()]))
            _furnish(new)
            new.rename(self.root)

    def _have_debootstrap(self) -> None:
        if shutil.which("debootstrap") is None:
            # Another program may be installing something on this machine.
            wait = ["-o", "DPkg::Lock::Timeout=300"]
            self._run(
                ["apt-get", *wait, "install", "-yqq", "--no-install-recommends", "debootstrap"]
            )

    def _run(self, command: Sequence[str]) -> None:
        environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C.UTF-8"}
        try:
            done = subprocess.run(command, env=environment, capture_output=True, text=True)
        except OSError as error:
            raise SuiteError(f"{command[0]} cannot be run ({error}); install it.") from error
        if done.returncode:
            tail = f"{done.stdout[-1500:]}{done.stderr[-1500:]}"
            raise SuiteError(f"Debian's {self.name}: {' '.join(command[-6:])} failed:\n{tail}")


def isolated(command: Sequence[str]) -> list[str]:
    """``command`` in namespaces of its own, so that its mounts and its processes end with it."""
    namespaces = ["unshare", "--mount", "--pid", "--fork", "--kill-child=KILL"]
    return with_parent([*namespaces, *command])


def mirror() -> str:
    """The mirror of Debian that this machine uses."""
    format_ = ["--format", "$(REPO_URI)", "Created-By: Packages", "Origin: Debian"]
    done = subprocess.run(["apt-get", "indextargets", *format_], capture_output=True, text=True)
    uses = [uri for uri in done.stdout.split() if not uri.rstrip("/").endswith("security")]
    return uses[0] if uses else _MIRROR


def _furnish(root: Path) -> None:
    """Keep packages from starting their servers, and give programs this machine's names and certificates."""
    policy = root / "usr/sbin/policy-rc.d"
    policy.write_text("#!/bin/sh\nexit 101\n")
    policy.chmod(0o755)
    # A mirror may be older than the week for which the list of sid's packages is valid.
    options = root / "etc/apt/apt.conf.d/any-age"
    options.write_text('Acquire::Check-Valid-Until "false";\n')
    _copy_files(root)


def _copy_files(root: Path) -> None:
    for name in _COPIED:
        if Path(name).exists():
            inside = root / name.lstrip("/")
            inside.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(name, inside)
