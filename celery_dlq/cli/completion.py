"""Names that a shell completes: tasks, groups, and ids of letters and operations.

A shell waits for them while a person types, so they are few, they come within seconds or not at all, and
nothing is printed, not even an error. Only plain names are offered, because a shell puts them into the
command line as they are, where ``$(…)`` in the name of a task would run.
"""

from __future__ import annotations

import contextlib
import io
import re
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING

import click

from celery_dlq.cli.session import Session
from celery_dlq.errors import CeleryDLQError
from celery_dlq.model.group import GroupFilter
from celery_dlq.store.base import Filter
from celery_dlq.view.text import last_part

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

#: The most names that are offered.
_MOST = 50

#: Seconds that the store may take to connect, and for each answer.
_STORE_TIMEOUT_S = 1.0

_PLAIN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.\-]{0,254}")

#: A name, and a word about it.
Offer = tuple[str, str]

#: Gives names for the beginning of one.
Complete = Callable[[click.Context, click.Parameter, str], "list[CompletionItem]"]


def _completes(offers: Callable[[Session, str], Iterable[Offer]]) -> Complete:
    """The function that click calls for the names in ``offers``."""

    def complete(
        ctx: click.Context, _param: click.Parameter, beginning: str
    ) -> list[CompletionItem]:
        from click.shell_completion import CompletionItem

        with _silent():
            session = _session(ctx)
            plain = (offer for offer in offers(session, beginning) if _PLAIN.fullmatch(offer[0]))
            return [
                CompletionItem(name, help=about or None) for name, about in islice(plain, _MOST)
            ]
        return []

    return complete


def _of_letters(session: Session, beginning: str) -> Iterator[Offer]:
    if beginning:
        for task_id in session.store.letters.match(beginning, limit=_MOST):
            yield task_id, ""
        return
    for letter in session.store.letters.find(Filter(), limit=_MOST).letters:
        yield letter.task_id, _about(letter.task, letter.exception_type)


def _of_groups(session: Session, beginning: str) -> Iterator[Offer]:
    # Groups without open letters, too, if a decision about them can be changed.
    which = GroupFilter(emptied=True)
    wanted = Filter(group=beginning or None)
    now = session.screen.now
    for group in session.store.groups.find(wanted, now=now, limit=_MOST, which=which):
        yield group.fingerprint, _about(group.task, group.exception_type)


def _of_operations(session: Session, beginning: str) -> Iterator[Offer]:
    store = session.store
    if beginning:
        yield from ((one, "") for one in store.operations.match(beginning, limit=_MOST))
    else:
        yield from ((one.id, one.state.value) for one in store.operations.find(limit=_MOST))


def _explained(session: Session, beginning: str) -> Iterator[Offer]:
    session.load_tasks()
    yield from _named(sorted(session.task_names()), beginning) if beginning else ()
    with contextlib.suppress(CeleryDLQError):  # the schedule of a task needs no store
        yield from _of_letters(session, beginning)


#: For the id of a letter, the fingerprint of a group, and the id of an operation.
complete_letter: Complete = _completes(_of_letters)
complete_group: Complete = _completes(_of_groups)
complete_operation: Complete = _completes(_of_operations)
#: For the id of a letter, or the name of a task of the app.
complete_explained: Complete = _completes(_explained)
#: For the name of a task that has open letters.
complete_task_of_letters: Complete = _completes(
    lambda session, beginning: _named(session.store.counts.by_task(Filter()), beginning)
)


def _named(tasks: Iterable[str], beginning: str) -> Iterator[Offer]:
    """The full names that begin like this; without any, the last parts of names that do."""
    known = list(tasks)
    full = [name for name in known if name.startswith(beginning)]
    last = (last_part(name) for name in known)
    found = full or dict.fromkeys(name for name in last if name.startswith(beginning))
    return ((name, "") for name in found)


def _about(task: str, exception_type: str) -> str:
    words = [last_part(task), last_part(exception_type)]
    return " ".join(word for word in words if _PLAIN.fullmatch(word))


def _session(ctx: click.Context) -> Session:
    """The session of the app that the command line names so far. Celery has not read it: a completion runs no
    command."""
    from celery.app.utils import find_app
    from celery.bin.base import CLIContext

    given = ctx.find_root().params.get("app")
    app = find_app(given) if isinstance(given, str) else given
    session = Session(CLIContext(app=app, no_color=True, workdir=None, quiet=True))
    session.cli.app.conf.dlq_store_timeout = _STORE_TIMEOUT_S
    return session


@contextlib.contextmanager
def _silent() -> Iterator[None]:
    """Print nothing, and raise nothing: the app of a user may do either while it is imported."""
    nowhere = io.StringIO()
    with (
        contextlib.suppress(Exception, SystemExit),
        contextlib.redirect_stdout(nowhere),
        contextlib.redirect_stderr(nowhere),
    ):
        yield
