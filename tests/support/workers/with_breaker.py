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
from kombu.asynchronous.semaphore import LaxBoundedSemaphore
from support.factories import T0
from support.workers.parent_requests import HeldDesk, Message, einfo

from celery_dlq import DLQTask
from celery_dlq.model.letter import Explanation
from celery_dlq.model.states import Verdict
from celery_dlq.model.worker import Circuit, Circuits, CircuitState
from celery_dlq.worker.admission import Admission
from celery_dlq.worker.admission.valve import Valve
from celery_dlq.worker.body.ending import RunEnd
from celery_dlq.worker.body.report import report, reported
from celery_dlq.worker.end.closing import report_to_valve
from celery_dlq.worker.end.request import DLQRequest

FAILURES, RECOVERY_S = 3, 10.0


class World:
    """The store, shared by workers, and its clock."""

    seconds = 0.0
    is_away = was_away = False
    accepts = True

    def __init__(self):
        self.circuits, self.asked, self.taken_back = {}, 0, []
        #: The roles of a store that a breaker asks.
        self.store = SimpleNamespace(
            circuits=SimpleNamespace(change=self.change_circuits, read_open=self.open_circuits),
            parked=SimpleNamespace(
                accept=lambda copies: self.accept_releases(copies), take_back=self.take_back
            ),
        )

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

    def is_full(self):
        return False

    def accept_releases(self, copies):
        return [self.accepts for _ in copies]

    def take_back(self, beginning, *, exact):
        self.taken_back.append((beginning, exact))
        return self.accepts

    def ask(self, question, then):
        self.asked += 1
        self.was_away = self.was_away or self.is_away
        then(None if self.is_away else question(self.store))


class Timer:
    def __init__(self):
        self.running, self.waiting = [], []

    def call_repeatedly(self, _seconds, tick):
        self.running.append(tick)
        return SimpleNamespace(cancel=lambda: self.running.remove(tick))

    def call_after(self, _seconds, call):
        self.waiting.append(call)

    def run_waiting(self):
        while self.waiting:
            self.waiting.pop(0)()


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
    """One worker of the app: what ran, what is recorded.

    :param slots: processes of its pool; without them the pool takes whatever it is given.
    """

    def __init__(self, app, world, slots=0):
        self.app, self.ran, self.running = app, [], []
        self.slots = LaxBoundedSemaphore(slots) if slots else None
        self.pool = SimpleNamespace(apply_async=self.take)
        self.consumer = SimpleNamespace(
            app=app, timer=Timer(), on_task_request=self.queue if slots else self.run,
            controller=SimpleNamespace(**{"_quick_release": self.slots.release} if slots else {}),
            connection=SimpleNamespace(default_channel=None),
        )  # fmt: skip
        self.desk = HeldDesk()
        self.desk.store = world.store
        self.desk.ask = world.ask
        dlq = app.dead_letter_queue
        self.wiring = SimpleNamespace(
            write=self.desk.write,
            app=SimpleNamespace(
                hold=SimpleNamespace(place="here"),
                redactor=dlq.redactor,
                settings=dlq.settings,
                grouping=dlq.grouping,
                subject_of=dlq.subject_of,
            ),
        )
        self.valve = Valve(
            self.wiring, self.desk, world, draw=lambda _low, high: high, monotonic=world
        )
        Admission([self.valve, self.valve.parking]).join(
            self.consumer, self.consumer.on_task_request
        )
        self.valve.start()

    @property
    def parked(self):
        """The ids of the messages that it has parked."""
        return [letter.task_id for letter in self.desk.records]

    def run(self, request):
        self.ran.append(request.id)
        self.running.append(request)

    def queue(self, request):
        """What Celery's worker does where its pool has slots."""
        self.slots.acquire(lambda: request.execute_using_pool(self.pool))

    def take(self, _trace, *, args, **_options):
        """Stands in for the pool's ``apply_async``."""
        self.ran.append(args[1])

    def tick(self):
        for tick in list(self.consumer.timer.running):
            tick()

    def deliver(self, number, task="charge", order=17, redelivered=False, **headers):
        registered, done = self.app.tasks[task], []
        base = DLQRequest if isinstance(registered, DLQTask) else Request
        cls = create_request_cls(base, registered, self.pool, "w@host", None, app=self.app)
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
        self.app.dead_letter_queue.capture.__dict__["valve"] = self.valve
        report_to_valve(request, reported(failure), failure.exception)

    def open(self, task="charge", order=17):
        for number in range(FAILURES):
            request = self.deliver(f"-{task}-{order}-{number}", task, order)
            self.fail(request)
            state.task_ready(request)
        self.tick()
        self.ran.clear()


def retried(*, for_error):
    info = einfo(Retry("again"))
    report(info, RunEnd(retried=True, for_error=for_error))
    return info


def died(verdict):
    info = einfo(ValueError("x"))
    failure = SimpleNamespace(explanation=Explanation(verdict=verdict, rule="r"))
    report(info, RunEnd(failure=failure))
    return info
