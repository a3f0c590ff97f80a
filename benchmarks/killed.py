"""How soon the tasks of a killed worker begin again on Redis. One of two workers is killed at random moments,
together with its pool. Running tasks that were acknowledged early become letters, which an automatic redrive
sends back; all other messages go back to their queue. Then each task is accounted for."""

from __future__ import annotations

import contextlib
import math
import os
import signal
import statistics
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from benchmarks.killed_pair import BODY_S, PREFETCH, SLOTS, Kill, Pair, within
from celery_dlq.recorder.files import look, standing

#: Kills of each variant. Plain Celery takes more than a minute for each.
KILLS = int(os.environ.get("BENCH_KILLS", "50"))
PLAIN_KILLS = int(os.environ.get("BENCH_PLAIN_KILLS", "5"))
#: The visibility timeout of plain Celery, in seconds. DLQTask has the default, which is an hour.
PLAIN_TIMEOUT_S = 60
#: Seconds after which a task that has not begun again is given up. Plain Celery looks for messages whose
#: timeout is over every 100 seconds.
PATIENCE_S, PLAIN_PATIENCE_S = 60.0, PLAIN_TIMEOUT_S + 180.0
#: Seconds from which on the lines of the logs are printed: of a task that begins again, and of a letter.
SLOW_S, SLOW_LETTER_S = 10.0, 5.0


@dataclass(frozen=True)
class _Variant:
    pool: str
    is_late: bool
    is_plain: bool = False

    def __str__(self) -> str:
        base = "plain Celery" if self.is_plain else "DLQTask"
        return f"{base}, {self.pool}, {'late' if self.is_late else 'early'}"


_POOLS = ("prefork", "threads")
VARIANTS = [
    *(_Variant(pool, is_late) for pool in _POOLS for is_late in (False, True)),
    *(_Variant(pool, is_late=True, is_plain=True) for pool in _POOLS),
]


def run() -> dict[str, float]:
    """The seconds after which the last task of all kills began again, by variant."""
    # The workers are groups of their own, and would outlive this process.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    chosen = os.environ.get("BENCH_ONLY", "")
    print(
        f"seconds from a kill until the tasks began again: Redis, two workers with {SLOTS} slots and "
        f"{SLOTS * PREFETCH} reserved messages each, tasks of {BODY_S[0]:g} to {BODY_S[1]:g} s"
    )
    return {str(one): _measure(one) for one in VARIANTS if chosen in str(one)}


def _measure(variant: _Variant) -> float:
    timeout_s = PLAIN_TIMEOUT_S if variant.is_plain else None
    count = PLAIN_KILLS if variant.is_plain else KILLS
    print(f"  {variant}, visibility timeout {timeout_s or 3600} s, {count} kills", flush=True)
    with contextlib.ExitStack() as stack:
        pair = Pair(variant.pool, stack, is_late=variant.is_late, timeout_s=timeout_s)
        kills = [_kill(pair, variant) for _ in range(count)]
        within(PATIENCE_S, lambda: pair.have_ended() and not pair.open_letters())
        _report("running tasks", kills, lambda kill: kill.again_s(kill.running))
        _report("their letters", kills, lambda kill: kill.lettered_s())
        _report("reserved messages", kills, lambda kill: kill.again_s(kill.reserved))
        _report("had ended before the kill by", kills, lambda kill: kill.needless_s())
        for held in sorted({kill.leases for kill in kills} - {""}):
            some = [kill for kill in kills if kill.leases == held]
            _report(f"it held {held}", some, lambda kill: kill.again_s(kill.affected))
        print(f"    {_account(pair, kills)}", flush=True)
    if variant.is_plain:
        print("    with the default visibility timeout: an hour")
    return max((s for kill in kills for s in kill.again_s(kill.affected).values()), default=0.0)


def _kill(pair: Pair, variant: _Variant) -> Kill:
    kill = pair.kill_one()
    within(PLAIN_PATIENCE_S if variant.is_plain else PATIENCE_S, kill.is_over)
    again, lettered = kill.again_s(kill.affected), kill.lettered_s()
    pair.given_up |= kill.affected - again.keys()
    within(10 * BODY_S[1], pair.have_ended)
    if not variant.is_plain:
        late = {one for one in kill.affected if again.get(one, SLOW_S) >= SLOW_S}
        _tell(pair, kill, late | {one for one, s in lettered.items() if s >= SLOW_LETTER_S})
    return kill


def _tell(pair: Pair, kill: Kill, slow: Iterable[str]) -> None:
    """Print what the logs say about tasks that took long."""
    for one in sorted(slow):
        again = kill.again_s([one]).get(one)
        when = "not begun again" if again is None else f"begun again after {again:.2f} s"
        print(
            f"    {one}: {when}; {kill.worker} was killed at {kill.at:.3f}, and held {kill.leases}"
        )
        for log in sorted(pair.place.glob("*.log")):
            for line in log.read_text(errors="replace").splitlines():
                if f"[{one}]" in line:
                    print(f"      {log.stem}: {line}")


def _report(what: str, kills: Sequence[Kill], times: Callable[[Kill], dict[str, float]]) -> None:
    found = sorted(seconds for kill in kills for seconds in times(kill).values())
    if found:
        middle, high = statistics.median(found), found[math.ceil(0.99 * len(found)) - 1]
        print(
            f"    {what:42} {len(found):5}: median {middle:6.2f}, 99 % {high:6.2f}, max {found[-1]:6.2f}"
        )


def _account(pair: Pair, kills: Sequence[Kill]) -> str:
    """Where all tasks are. Nothing has vanished if each has ended, or has a letter that is open."""
    sent, ended = {*pair.sent}, pair.notes.have("ended", pair.sent)
    letters = pair.open_letters()
    found = standing(look(pair.place / "celery_dlq_spool" / "recorder"))
    affected = sum(len(kill.affected) for kill in kills)
    twice = sum(pair.notes.count("ended", one) > 1 for one in sent)
    return (
        f"{len(sent)} sent, {affected} with killed workers, {len(ended)} ended, {twice} of them twice; "
        f"{len(letters)} open letters; {len(sent - ended - letters)} neither ended nor have a letter; "
        f"{found.unrecovered} wait in files of killed workers, "
        f"{pair.client.hlen('unacked')} in Redis as received"
    )
