"""A web application on gunicorn whose requests send tasks, its customers, a broker that is killed beside
them, and the account of every request.

``make kill-brokers`` sets greater numbers.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import math
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from chaos.servers import RabbitMQ, Redis
from killed import letters_of
from project import PATIENCE_S, Project, stop, wait_for
from support.servers.ports import free_port
from support.workers.processes import children, with_parent

from celery_dlq import DeadLetter

KILLS = int(os.environ.get("CELERY_DLQ_BROKER_KILLS", "2"))
REQUESTS = int(os.environ.get("CELERY_DLQ_BROKER_REQUESTS", "300"))
#: Requests each second, and the threads that make them.
RATE, THREADS = float(os.environ.get("CELERY_DLQ_BROKER_RATE", "40")), 8
#: Seconds that the broker is away before it is started again, which takes RabbitMQ some more.
AWAY_S = (0.5, 4.0)
#: Seconds after which an outage counts as a long one.
LONG_S = 3.0
#: Seconds in which no task has run and no message has come or gone, after which all is over: when no message
#: is left, and when some are. A letter whose message may be in the broker waits for 60 s.
QUIET_S, STUCK_S = 5.0, 90.0
#: Longer than any request takes.
REQUEST_TIMEOUT_S = 300.0

Broker = Redis | RabbitMQ
BROKERS = {"redis": Redis, "rabbitmq": RabbitMQ}
#: Ways to serve the application.
WEB = {
    "sync": (),
    "preload": ("--preload",),
    "gthread": ("--worker-class", "gthread", "--threads", "8"),
    "gevent": ("--worker-class", "gevent"),
}


@dataclass(frozen=True)
class Outage:
    """When the broker was killed, and when it served again; seconds since the epoch."""

    began: float
    ended: float


@dataclass(frozen=True)
class Request:
    """A request and its answer; ``status`` is 0 if there was none."""

    number: int
    began: float
    seconds: float
    status: int
    told: dict[str, object] = field(default_factory=dict)

    @property
    def sending_s(self) -> float:
        """How long the application's call took."""
        return float(self.told.get("seconds", self.seconds))


class Customers:
    """Make numbered requests, up to :attr:`allowed`, at a steady rate."""

    def __init__(self, port: int) -> None:
        self.answers: list[Request] = []
        #: Those that have no answer yet.
        self.under_way: set[int] = set()
        self.allowed = 0.0
        self._port, self._numbers = port, iter(range(REQUESTS))
        self._lock = threading.Lock()
        self._threads = [threading.Thread(target=self._ask, daemon=True) for _ in range(THREADS)]
        self._due = time.monotonic()
        for thread in self._threads:
            thread.start()

    @property
    def are_done(self) -> bool:
        return not any(thread.is_alive() for thread in self._threads)

    def _ask(self) -> None:
        while (number := self._next()) is not None:
            self.under_way.add(number)
            self.answers.append(ask(self._port, str(number)))
            self.under_way.discard(number)

    def _next(self) -> int | None:
        """The next request when it is due; None after the last one."""
        with self._lock:
            number = next(self._numbers, None)
            while number is not None and number >= self.allowed:
                time.sleep(0.005)
            time.sleep(max(0.0, self._due - time.monotonic()))
            self._due = max(self._due + 1 / RATE, time.monotonic())
            return number


def ask(port: int, query: str) -> Request:
    """A request, and its answer."""
    at, began = time.time(), time.monotonic()
    status, told = 0, {}
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=REQUEST_TIMEOUT_S)
    with contextlib.closing(connection), contextlib.suppress(OSError, http.client.HTTPException):
        connection.request("GET", f"/?{query}")
        answer = connection.getresponse()
        told = json.loads(answer.read())
        status = answer.status
    return Request(int(query or -1), at, time.monotonic() - began, status, told)


@contextlib.contextmanager
def web(project: Project, kind: str, processes: int = 4) -> Iterator[tuple[int, int]]:
    """gunicorn, which serves; yields its port and its first process."""
    port = free_port()
    command = [
        sys.executable, "-m", "gunicorn", "--bind", f"127.0.0.1:{port}", "--workers", str(processes),
        "--no-control-socket", *WEB[kind], "proj_served:application",
    ]  # fmt: skip
    with (project.directory / "gunicorn.log").open("ab") as log:
        process = subprocess.Popen(
            with_parent(command), env=project.environment, cwd=project.directory, stdout=log,
            stderr=subprocess.STDOUT,
        )  # fmt: skip
    try:
        wait_for("gunicorn to serve", lambda: ask(port, "").status == 200)
        yield port, process.pid
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(PATIENCE_S)


def kill_one(first: int, chance: random.Random) -> None:
    """Kill a process of gunicorn, which starts another one."""
    with contextlib.suppress(IndexError, ProcessLookupError):
        os.kill(chance.choice(children(first)), signal.SIGKILL)


class Workers:
    """One worker; another one is started if it ends by itself, as any supervisor does."""

    def __init__(self, project: Project, *options: str) -> None:
        self._project, self._options, self.started = project, options, 0
        self._start()
        wait_for("the worker", lambda: b" ready." in self._log.read_bytes())

    def _start(self) -> None:
        self._process, self._log = self._project.start_worker(*self._options)
        self.started += 1

    def revive(self) -> None:
        if self._process.poll() is not None:
            self._start()

    def close(self) -> None:
        """Stop it, and kill it if it does not."""
        stop(self._process, self._log)


@contextlib.contextmanager
def killed(broker: Broker) -> Iterator[None]:
    """It is killed, and started again in the end."""
    broker.kill()
    yield
    broker.start()


@contextlib.contextmanager
def frozen(broker: Broker) -> Iterator[None]:
    """It neither answers nor refuses."""
    broker.freeze()
    yield
    broker.thaw()


def interrupt(
    broker: Broker,
    customers: Customers,
    chance: random.Random,
    *,
    away: Callable[[Broker], contextlib.AbstractContextManager[None]] = killed,
    away_s: tuple[float, float] = AWAY_S,
    meanwhile: Callable[[], object] = lambda: None,
) -> list[Outage]:
    """The broker is away again and again while the requests come, which are as many for each outage; every
    second time from the middle of a request on.

    :param meanwhile: called many times in each second.
    """

    def wait_until(ready: Callable[[], object]) -> None:
        while not ready() and not customers.are_done:
            meanwhile()
            time.sleep(0.002)

    outages = []
    for number in range(KILLS):
        customers.allowed = REQUESTS * (number + 1) / KILLS
        due = REQUESTS * (number + chance.uniform(0.1, 0.6)) / KILLS
        wait_until(lambda due=due: len(customers.answers) >= due)
        if number % 2:
            wait_until(lambda: customers.under_way)
            time.sleep(chance.uniform(0, 0.003))
        began = time.time()
        with away(broker):
            back_at = began + chance.uniform(*away_s)
            wait_until(lambda back_at=back_at: time.time() > back_at)
        outages.append(Outage(began, time.time()))
    wait_until(lambda: customers.are_done)
    return outages


@dataclass(frozen=True)
class Run:
    """A run of a task. ``release`` names its copy if the store had the message."""

    at: float
    redelivered: bool
    release: str


def runs_of(project: Project) -> dict[int, list[Run]]:
    """The runs of each number's task."""
    runs = defaultdict(list)
    for line in project.lines("runs"):
        run = json.loads(line)
        runs[run.pop("number")].append(Run(**run))
    return runs


def wait_until_all_is_quiet(project: Project, broker: Broker, workers: Workers) -> int:
    """Wait until nothing more happens; returns how many messages are left in the broker."""
    seen, since = (0, 0, 0), time.monotonic()

    def is_over() -> bool:
        nonlocal seen, since
        workers.revive()
        time.sleep(0.1)
        kept = project.parked() + len(project.dlq.spool.files())
        now = broker.messages(project.queue), kept, len(project.lines("runs"))
        if now != seen:
            seen, since = now, time.monotonic()
        left = any(seen[:2])
        return time.monotonic() - since > (STUCK_S if left else QUIET_S)

    wait_for("all to be quiet", is_over, PATIENCE_S + STUCK_S + REQUESTS / 10)
    return seen[0]


def quantile(values: Sequence[float], share: float) -> float:
    """The smallest of ``values`` that this share of them does not exceed; 0 if there are none."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)] if ordered else 0.0


#: Where a request was in an outage when it began.
UP, HIT, SHORT, LONG = "up", "hit by the kill", "away", "away for long"


@dataclass(frozen=True)
class Account:
    """How each request ended."""

    requests: Sequence[Request]
    outages: Sequence[Outage]
    runs: Mapping[int, Sequence[Run]]
    letters: Mapping[int, Sequence[DeadLetter]]
    workers: int
    #: Messages that are left in the broker.
    left: int

    def numbers(self, status: int) -> set[int]:
        """The requests with this answer."""
        return {one.number for one in self.requests if one.status == status}

    @property
    def lost(self) -> set[int]:
        """Answered requests whose tasks neither ran nor are letters."""
        return self.numbers(200) - self.runs.keys() - self.letters.keys()

    @property
    def doubled(self) -> set[int]:
        """Tasks that ran by two messages."""
        return {
            number for number, runs in self.runs.items()
            if len({run.release for run in runs}) > 1 or sum(not run.redelivered for run in runs) > 1
        }  # fmt: skip

    @property
    def redelivered(self) -> set[int]:
        """Tasks that ran again, because the broker delivered one message again."""
        return {n for n, runs in self.runs.items() if len(runs) > 1} - self.doubled

    @property
    def both(self) -> set[int]:
        """Tasks that ran and are letters."""
        return self.runs.keys() & self.letters.keys()

    def phase_of(self, request: Request) -> str:
        """Where the broker was when ``request`` began."""
        end = request.began + request.seconds
        for outage in self.outages:
            if outage.began <= request.began < outage.ended:
                return LONG if request.began - outage.began >= LONG_S else SHORT
            if request.began < outage.began < end:
                return HIT
        return UP

    def seconds(self, *phases: str) -> list[float]:
        """How long the requests that began in these phases took."""
        return [one.seconds for one in self.requests if self.phase_of(one) in phases]

    def __str__(self) -> str:
        answered, failed = self.numbers(200), self.numbers(500)
        ran = Counter(min(len(runs), 2) for runs in self.runs.values())
        kept = Counter(
            f"{one.state.value} {one.reason.value}" for all in self.letters.values() for one in all
        )
        released = sum(any(run.release for run in runs) for runs in self.runs.values())
        lines = [
            f"{len(self.outages)} outages, {len(self.requests)} requests: {len(answered)} answered, "
            f"{len(failed)} failed, {len(self.numbers(0))} without an answer",
            f"ran {len(self.runs)}, {released} from the store; twice {ran[2]}: "
            f"{len(self.doubled)} as two messages, {len(self.redelivered)} as one, delivered again",
            f"lost {len(self.lost)}, ran and are letters {len(self.both)}, failed and ran "
            f"{len(failed & self.runs.keys())}, left in the broker {self.left}; letters {dict(kept)}; "
            f"workers {self.workers}",
        ]
        for phase in (UP, HIT, SHORT, LONG):
            requests = [one for one in self.requests if self.phase_of(one) == phase]
            lines.append(
                f"{phase}, {len(requests)} requests: {spread([one.seconds for one in requests])}; in the "
                f"application {spread([one.sending_s for one in requests])}"
            )
        return "\n  ".join(lines)


def spread(seconds: Sequence[float]) -> str:
    """The median and the upper end of ``seconds``."""
    p50, p99 = quantile(seconds, 0.5), quantile(seconds, 0.99)
    slow = sum(one > 0.02 for one in seconds)
    return (
        f"p50 {p50:.3f}, p99 {p99:.3f}, max {max(seconds, default=0.0):.3f} s, {slow} above 20 ms"
    )


def account_of(
    project: Project, customers: Customers, outages: Sequence[Outage], workers: int, left: int
) -> Account:
    """The account, once all is quiet."""
    letters = defaultdict(list)
    for letter in letters_of(project):
        letters[int(letter.args[0])].append(letter)
    return Account(customers.answers, outages, runs_of(project), letters, workers, left)
