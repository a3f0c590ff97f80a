"""Random lives of messages in two workers with a breaker: each ends once, and one probe runs at a time."""

from __future__ import annotations

from celery.worker import state
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from support.workers.with_breaker import FAILURES, Worker, World, breaking_app

workers = st.integers(0, 1)


class Lives(RuleBasedStateMachine):
    """Messages are on their way, running, parked, or ended."""

    @initialize()
    def start(self):
        state.reset_state()
        self.app, self.world = breaking_app("unused"), World()
        self.workers = [Worker(self.app, self.world) for _ in range(2)]
        self.on_their_way, self.parked, self.ended = list[int](), list[int](), list[int]()
        self.sent = 0

    @rule()
    def send(self):
        self.on_their_way.append(self.sent)
        self.sent += 1

    @rule(to=workers)
    def deliver(self, to):
        if self.on_their_way:
            self.give(self.on_their_way.pop(0), to)

    @rule(to=workers)
    def release(self, to):
        if self.parked:
            self.give(self.parked.pop(0), to)

    @rule(of=workers, how=st.sampled_from(["retried", "exhausted", "terminal", "lost"]))
    def fail(self, of, how):
        if self.workers[of].running:
            request = self.workers[of].running.pop(0)
            self.workers[of].fail(request, how)
            state.task_ready(request)
            (self.on_their_way if how == "retried" else self.ended).append(number_of(request))

    @rule(of=workers)
    def succeed(self, of):
        if self.workers[of].running:
            request = self.workers[of].running.pop(0)
            request.on_success((False, None, 0.1))
            self.ended.append(number_of(request))

    @rule(of=workers)
    def storm(self, of):
        """The service is away: the circuit opens."""
        for _ in range(FAILURES):
            self.send()
        while self.on_their_way:
            self.deliver(of)
        while self.workers[of].running:
            self.fail(of, "retried")
        self.wait(1)

    @rule(seconds=st.sampled_from([1, 10, 20, 40]))
    def wait(self, seconds):
        for _ in range(seconds):
            self.world.seconds += 1
            for worker in self.workers:
                worker.tick()

    @rule(is_away=st.sampled_from([True, False, False]))
    def store(self, is_away):
        self.world.is_away = is_away

    def give(self, number, to):
        worker = self.workers[to]
        worker.deliver(number)
        worker.desk.release()
        self.parked += [int(letter.task_id[1:]) for letter in worker.desk.records]
        worker.desk.records.clear()

    @invariant()
    def one_probe_runs(self):
        probes = [request for request in self.running() if request.dlq_probe]
        # While the store is away, a worker cannot say that its probe still runs.
        assert self.world.was_away or len(probes) <= 1
        self.world.was_away &= bool(probes)

    @invariant()
    def each_is_in_one_place(self):
        running = [number_of(request) for request in self.running()]
        places = [*self.on_their_way, *self.parked, *self.ended, *running]
        assert sorted(places) == list(range(self.sent))

    def running(self):
        return [request for worker in self.workers for request in worker.running]

    def teardown(self):
        if not hasattr(self, "world"):
            return
        self.world.is_away = False
        for _ in range(100):
            self.wait(10)
            for of in (0, 1):
                while self.workers[of].running:
                    self.succeed(of)
            for _ in range(len(self.on_their_way)):
                self.deliver(0)
            for _ in range(len(self.parked)):
                self.release(1)
        self.each_is_in_one_place()
        assert len(self.ended) == self.sent, "with the service back, all come to their end"
        self.app.close()


def number_of(request) -> int:
    return int(request.id[1:])


TestLives = Lives.TestCase
TestLives.settings = settings(stateful_step_count=40, deadline=None)
