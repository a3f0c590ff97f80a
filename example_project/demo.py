"""The demo: a day at the shop, its dead letters, a night without a person, the fix, and the redrive.

``make demo``, or ``python -m example_project.demo``. Exit status 0 means that every letter is resolved,
every order has the right result, and no letter is missing or unexpected.
"""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timezone
from urllib.request import Request, urlopen

from rich import box
from rich.console import Console
from rich.table import Table

from celery_dlq import DeadLetter, DeadLetterQueue, Filter, Reason, State
from celery_dlq.store.sql import SQLStore
from example_project import checks, night, release, tax, tax_server
from example_project.celery_app import DIRECTORY, app
from example_project.day import Placed, place_orders
from example_project.processes import DemoError, dlq, interruption, log_tail, worker

#: Seconds that anything may take before the demo gives up.
PATIENCE_S = 120.0
_LOOK_AGAIN_S = 0.1

console = Console(highlight=False)


def main() -> int:
    """Run the demo; returns the exit status."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, interruption.ask)
    try:
        start_afresh()
        with tax_server.serving() as url:
            os.environ[tax.URL_VARIABLE] = url
            run(url)
    except DemoError as error:
        console.print(f"\n{error}", style="bold red", markup=False, soft_wrap=True)
        return 1
    except KeyboardInterrupt:
        console.print("\nInterrupted.", style="bold red")
        return 130
    return 0


def start_afresh() -> None:
    """Forget the last demo."""
    shutil.rmtree(DIRECTORY, ignore_errors=True)
    DIRECTORY.mkdir()


def run(tax_url: str) -> None:
    """The session, from the first order to the last resolved letter.

    :raises DemoError: something is not as it should be.
    """
    began = datetime.now(timezone.utc)
    say("The store's schema. (SQLite gets it automatically; other databases need this command.)")
    dlq(console, "db", "upgrade")
    store = open_store()

    say("A day at the shop. Release 1 has bugs, and tax offices have moods.")
    with worker(console, {release.VARIABLE: "1"}) as process:
        placed = place_orders()
        wait_for(lambda: checks.unsettled(placed, store), process)
    dead = checks.letters_of(placed, store)
    say(f"{len(placed)} orders sent; {len(dead)} of them died. What is failing?")
    look(dead)

    say(
        "The night. No person is at a desk; an automatic redrive and a handler are. "
        "The tax office of Greece works again."
    )
    set_mood(tax_url, "GR", "fine")
    for_night = {release.VARIABLE: "1", night.VARIABLE: "1"}
    resolved_at_night = [order for order in placed if not order.needs_fix]
    with worker(console, for_night, "--queues", "shop,dlq-handlers") as process:
        wait_for(lambda: checks.unresolved(resolved_at_night, store), process)
    dlq(console, "auto", "history", environment=for_night)

    say("The fix: release 2 is deployed in the morning. What is left goes back by hand.")
    with worker(console, {release.VARIABLE: "2"}) as process:
        dlq(
            console, "redrive", "--all", "--yes", "--canary", "1", "--rate", "6/s", "--wait", "1m"
        )  # fmt: skip
        wait_for(lambda: checks.unresolved(placed, store), process)
    dlq(console, "stats")
    summarise(placed, store, checks.unexpected(placed, store, began))


def open_store() -> SQLStore:
    """The dead-letter store. It must not hold open letters of another app, because the demo redrives
    all."""
    store = DeadLetterQueue.of(app).store
    others = store.counts.letters(Filter())
    if others:
        raise DemoError(
            f"The store holds {others} open letters already, which the demo would redrive; "
            "set CELERY_DLQ_STORE_URL to an empty database."
        )
    return store


def look(dead: Sequence[DeadLetter]) -> None:
    """Show what an operator would look at, ending with one letter in full."""
    dlq(console, "groups")
    dlq(console, "list")
    exhausted = next(letter for letter in dead if letter.reason is Reason.EXHAUSTED)
    dlq(console, "show", exhausted.task_id[:8])


def set_mood(tax_url: str, country: str, mood: str) -> None:
    """Tell the tax service how to behave."""
    request = Request(f"{tax_url}/moods/{country}", data=mood.encode(), method="PUT")
    urlopen(request, timeout=5).close()


def wait_for(problems: Callable[[], list[str]], process: subprocess.Popen[bytes]) -> None:
    """Return once there are no more ``problems``.

    :raises DemoError: there still are some after :data:`PATIENCE_S`, or the worker has ended.
    """
    deadline = time.monotonic() + PATIENCE_S
    while left := problems():
        interruption.check()
        if process.poll() is not None or time.monotonic() > deadline:
            ended = "The worker ended." if process.poll() is not None else "Timed out."
            raise DemoError("\n  ".join([ended, *left]) + f"\nIts log ends with:\n{log_tail()}")
        time.sleep(_LOOK_AGAIN_S)


def summarise(placed: Sequence[Placed], store: SQLStore, problems: Sequence[str]) -> None:
    """Show the figures in a table, and raise an error if anything is left."""
    letters = checks.letters_of(placed, store)
    left, still_open = checks.unresolved(placed, store), store.counts.letters(Filter())
    show_table(
        {
            "orders sent": len(placed),
            "done as they should": len(placed) - len(left),
            **_by_reason(letters),
            "redriven": sum(1 for letter in letters if letter.redrive_count),
            "resolved": sum(1 for letter in letters if letter.state is State.RESOLVED),
            "open": still_open,
        }
    )
    if left or problems or still_open:
        raise DemoError("\n  ".join(["Not as it should be:", *left, *problems]))
    console.print("Every order is done, and every letter resolved.", style="bold green")


def show_table(figures: Mapping[str, int]) -> None:
    """The figures of the day."""
    table = Table("The day in figures", show_header=True, box=box.SIMPLE_HEAD)
    table.add_column("", justify="right")
    for name, count in figures.items():
        table.add_row(name, str(count))
    console.print()
    console.print(table)


def _by_reason(letters: Sequence[DeadLetter]) -> dict[str, int]:
    counts = Counter(letter.reason.value for letter in letters)
    return {f"dead-lettered: {reason}": count for reason, count in counts.most_common()}


def say(text: str) -> None:
    """A heading."""
    interruption.check()
    console.print(f"\n{text}", style="bold", markup=False, soft_wrap=True)


if __name__ == "__main__":
    sys.exit(main())
