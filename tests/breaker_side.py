"""Workers with a breaker, without Celery's own loop: the requests are real, the store is a dictionary with a
clock, and the pool keeps what it is given."""

from __future__ import annotations

from datetime import timedelta
from types import SimpleNamespace

from billiard.exceptions import WorkerLostError
from celery import Celery, Task
from celery.exceptions import Ignore, Retry
from celery.worker import state
from celery.worker.request import Request, create_request_cls
from factories import T0
from parent_side import HeldRecorder, Message, einfo

from celery_dlq import DLQTask
from celery_dlq.circuit import Circuit, Circuits, CircuitState
from celery_dlq.letter import Explanation
from celery_dlq.states import Verdict
from celery_dlq.worker.admission.breaker import Breaker
from celery_dlq.worker.admission.circuits import CircuitBoard
from celery_dlq.worker.request import DLQRequest

FAILURES, RECOVERY_S = 3, 10.0


class World:
    """The store, shared by workers, and its clock."""

    seconds = 0.0
    is_away = was_away = False
    accepts = True

    def __init__(self):
        self.circuits, self.asked, self.taken_back = {}, 0, []

    def __call__(self):
        return self.seconds

    @property
    def now(self):
        return T0 + timedelta(seconds=self.seconds)

    def change_circuits(self, changes):
        changed = []
        for name, apply in changes.items():
            before = self.circuits.get(name, Circuit(task=name[0], key=name[1]))
            self.circuits[name] = apply(before, self.now)
            changed.append(self.circuits[name])
        return tuple(changed)

    def open_circuits(self):
        not_closed = [c for c in self.circuits.values() if c.state is not CircuitState.CLOSED]
        return Circuits(now=self.now, circuits=tuple(not_closed))

    def accept_releases(self, copies):
        return [self.accepts for _ in copies]

    def take_back(self, beginning, *, exact):
        self.taken_back.append((beginning, exact))
        return self.accepts

    def ask(self, question, then):
        self.asked += 1
        self.was_away = self.was_away or self.is_away
        then(None if self.is_away else question(self))


class Timer:
    def __init__(self):
        self.running = []

    def call_repeatedly(self, _seconds, tick):
        self.running.append(tick)
        return SimpleNamespace(cancel=lambda: self.running.remove(tick))


def breaking_app(spool_dir):
    """An app with a task that has a breaker, one that has one for each order, and others."""
    app = Celery("unit", broker="memory://", set_as_current=False)
    app.conf.update(dlq_spool_dir=spool_dir, dlq_breaker_recovery=RECOVERY_S)

    def body(order=0, token=""): ...

    app.task(body, base=DLQTask, name="charge", shared=False, dlq_breaker_failures=FAILURES)
    app.task(
        body, base=DLQTask, name="keyed", shared=False,
        dlq_breaker_failures=FAILURES, dlq_breaker_key="{order}",
    )  # fmt: skip
    app.task(body, base=DLQTask, name="mail", shared=False)
    app.task(body, base=Task, name="plain", shared=False)
    app.finalize()
    return app


class Worker:
    """One worker of the app: what ran, what is recorded."""

    def __init__(self, app, world):
        self.app, self.ran, self.running = app, [], []
        self.consumer = SimpleNamespace(timer=Timer(), on_task_request=self.run)
        self.recorder = HeldRecorder()
        self.recorder.store = world
        self.recorder.ask = world.ask
        dlq = app.dead_letter_queue
        self.wiring = SimpleNamespace(
            record=self.recorder.record, hold=SimpleNamespace(place="here"),
            redactor=dlq.redactor, settings=dlq.settings,
        )  # fmt: skip
        self.breaker = Breaker(
            self.wiring, self.recorder, CircuitBoard(world, world), draw=lambda _low, high: high
        )
        self.breaker.join(self.consumer, app.tasks.values())
        self.breaker.start()

    def run(self, request):
        self.ran.append(request.id)
        self.running.append(request)

    def tick(self):
        for tick in list(self.consumer.timer.running):
            tick()

    def deliver(self, number, task="charge", order=17, redelivered=False, **headers):
        registered, done = self.app.tasks[task], []
        base = DLQRequest if isinstance(registered, DLQTask) else Request
        pool = SimpleNamespace(apply_async=None)
        cls = create_request_cls(base, registered, pool, "w@host", None, app=self.app)
        message = Message(task, **{"id": f"m{number}", **headers})
        message.payload = ([order], {}, {})
        message.delivery_info["redelivered"] = redelivered
        request = cls(
            message, app=self.app, task=registered, hostname="w@host", body=message.body,
            on_ack=lambda *_: done.append("ack"), on_reject=lambda *_: done.append("reject"),
        )  # fmt: skip
        request.done = done
        state.task_reserved(request)
        self.consumer.on_task_request(request)
        return request

    def fail(self, request, how="retried"):
        failure = {
            "retried": retried(for_error=True), "postponed": retried(for_error=False),
            "exhausted": died(Verdict.TRANSIENT), "terminal": died(Verdict.TERMINAL),
            "ignored": einfo(Ignore()), "lost": einfo(WorkerLostError("gone")),
        }[how]  # fmt: skip
        self.app.dead_letter_queue.__dict__["breaker"] = self.breaker
        request._tell_breaker(failure, failure.exception)

    def open(self, task="charge", order=17):
        for number in range(FAILURES):
            request = self.deliver(f"-{task}-{order}-{number}", task, order)
            self.fail(request)
            state.task_ready(request)
        self.tick()
        self.ran.clear()


def retried(*, for_error):
    info = einfo(Retry("again"))
    info.dlq_retried, info.dlq_for_error = True, for_error
    return info


def died(verdict):
    info = einfo(ValueError("x"))
    info.dlq_failure = SimpleNamespace(explanation=Explanation(verdict=verdict, rule="r"))
    return info
