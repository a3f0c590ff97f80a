"""The doctor's look at the flight recorder's directory, and what that directory survives."""

from __future__ import annotations

from pathlib import Path

from celery_dlq.cli.doctor.finding import Finding, Findings, Level, why_not_writable
from celery_dlq.cli.session import Session
from celery_dlq.recorder import LeftState
from celery_dlq.view.text import counted

#: File systems, as the kernel names them, and what ends their contents.
_TRANSIENT = {
    "tmpfs": "in memory: its files go when the machine or the pod ends",
    "ramfs": "in memory: its files go when the machine or the pod ends",
    "overlay": "the container's own: its files go when the container is replaced",
    "aufs": "the container's own: its files go when the container is replaced",
}


_STEPS = {
    LeftState.NEWER: "a newer release wrote it; run: pip install --upgrade celery-dlq",
    LeftState.DAMAGED: "something in it cannot be read; keep a copy elsewhere, and remove it",
}


def check_recorder(session: Session) -> Findings:
    """Whether messages can be recorded, and would be found again."""
    if not session.queue.settings.recorder:
        yield Finding(
            Level.WARNING,
            "dlq_recorder is off: a worker that is killed loses the tasks that it has acknowledged early",
        )
        return
    directory = session.queue.recorder_dir
    why_not = why_not_writable(directory)
    if why_not:
        yield Finding(
            Level.ERROR,
            f"{why_not}: messages run without a copy; make the directory writable for the workers' user, or "
            "set dlq_recorder_dir",
        )
        return
    kind = file_system_of(directory)
    if kind in _TRANSIENT:
        yield Finding(
            Level.WARNING,
            f"{directory} is on {kind}, {_TRANSIENT[kind]}; set dlq_recorder_dir to a volume that outlives "
            "them: celery -A <app> dlq help killed-workers",
        )
    yield from _left(session)
    if kind not in _TRANSIENT:
        yield Finding(Level.OK, f"{directory} is writable, on {kind or 'a disk'}")


def _left(session: Session) -> Findings:
    found = list(session.queue.recorded())
    gone = sum(one.messages for one in found if one.state is LeftState.GONE)
    if gone:
        yield Finding(
            Level.WARNING,
            f"{counted(gone, 'message')} of killed workers wait for recovery; a worker started here recovers "
            "them, or run: celery -A <app> dlq recorder recover",
        )
    for state, step in _STEPS.items():
        names = ", ".join(one.path.name for one in found if one.state is state)
        if names:
            yield Finding(Level.WARNING, f"{names}: {step}")


def file_system_of(directory: Path, mounts: Path = Path("/proc/self/mountinfo")) -> str:
    """The type of the file system that ``directory`` is or will be on; empty if the kernel does not say."""
    try:
        lines = mounts.read_text().splitlines()
    except OSError:
        return ""
    wanted, best, kind = directory.absolute().resolve(), -1, ""
    for line in lines:
        fields, _, others = line.partition(" - ")
        point = Path(fields.split()[4].replace("\\040", " "))
        # A later mount on the same place hides the earlier one.
        if (point == wanted or point in wanted.parents) and len(point.parts) >= best:
            best, kind = len(point.parts), others.split()[0]
    return kind
