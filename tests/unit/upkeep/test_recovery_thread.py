from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest
from support.factories import T0

from celery_dlq.errors import StoreUnavailable
from celery_dlq.model.worker import RecorderReport, ReportKind
from celery_dlq.upkeep import recovery as module
from celery_dlq.upkeep.recovery import Recovered, RecoveryThread

PATIENCE_S = 60


class Reports:
    """The store's reports."""

    def __init__(self):
        self.kept, self.calls = {}, 0

    def note(self, reports):
        self.calls += 1
        self.kept |= {one.about: one for one in reports}

    def withdraw(self, reports):
        self.calls += 1
        for one in reports:
            del self.kept[one.about]


def report(about, kind=ReportKind.STUCK):
    return RecorderReport(
        kind=kind, about=about, worker="w@host", host="host", messages=1, since=T0, why="no"
    )


class Queue:
    """Each round of the recovery takes the next answer; the last one is repeated."""

    def __init__(self, *answers):
        self.answers, self.rounds, self.looks, self.failed = list(answers), 0, 0, []
        self.recorder_dir, self.recorder = Path("nowhere"), self
        self.enough = threading.Event()
        #: What counts the recovered messages; and reports about this worker.
        self.meter, self.troubles = None, []
        self.store = SimpleNamespace(recorder_reports=Reports())
        self.store_health = SimpleNamespace(works=lambda _does: None, fails=self.fails)

    def fails(self, _does, error):
        self.failed.append(str(error))

    def recover(self, *, began_at, only_new):
        self.rounds += 1
        self.looks += only_new
        if self.rounds > len(self.answers):
            self.enough.set()
        answer = self.answers[min(self.rounds, len(self.answers)) - 1]
        if isinstance(answer, Exception):
            raise answer
        yield from answer

    def uncovered(self):
        return self.troubles


@pytest.fixture
def run(monkeypatch):
    def run(queue):
        monkeypatch.setattr(module, "LOOK_S", 0.0)
        monkeypatch.setattr(module, "ROUND_S", 0.0)
        thread = RecoveryThread(queue)
        thread.start()
        assert queue.enough.wait(PATIENCE_S)
        thread.stop()
        thread.join(PATIENCE_S)
        assert not thread.is_alive()

    return run


def test_a_directory_that_cannot_be_read_is_logged_once_and_its_end_too(run, caplog):
    caplog.set_level("INFO")
    run(Queue(PermissionError("no"), PermissionError("no"), [], []))
    assert caplog.text.count("messages of killed workers are not recovered: no") == 1
    assert caplog.text.count("messages of killed workers are recovered again") == 1


def test_a_store_that_is_away_is_tried_again(run):
    queue = Queue(StoreUnavailable("away"), [])
    run(queue)
    assert queue.failed == ["away"]


def test_an_unexpected_error_does_not_end_it(run, caplog):
    run(Queue(RuntimeError("a bug"), []))
    assert "recovery failed unexpectedly" in caplog.text


def test_it_stops_between_two_directories():
    stopped = []

    def endless():
        thread.stop()
        for number in range(1_000):
            stopped.append(number)
            yield Recovered(reports=(report(str(number)),))

    thread = RecoveryThread(Queue(endless()))
    thread.round()
    assert stopped == [0]
    assert thread._dlq.store.recorder_reports.calls == 0


def test_recovered_messages_are_counted(run):
    counted = []
    queue = Queue([Recovered(letters=2), Recovered(ended=1)], [])
    queue.meter = SimpleNamespace(recovered=lambda **numbers: counted.append(numbers))
    run(queue)
    assert counted == [{"letters": 2, "ended": 0}, {"letters": 0, "ended": 1}]


def test_a_worker_without_trouble_asks_the_store_nothing(run):
    queue = Queue([], [Recovered(letters=3)], [])
    run(queue)
    assert queue.store.recorder_reports.calls == 0


def test_a_report_is_withdrawn_when_it_is_not_true_any_more(run):
    queue = Queue(
        [Recovered(reports=(report("a"), report("b")))], [Recovered(reports=(report("b"),))]
    )
    run(queue)
    assert list(queue.store.recorder_reports.kept) == ["b"]


def test_reports_about_killed_workers_outlive_the_one_that_reports_them(run):
    queue = Queue([Recovered(reports=(report("a"),))])
    queue.troubles = [report("me", ReportKind.UNCOVERED)]
    run(queue)
    assert list(queue.store.recorder_reports.kept) == ["a"]


def test_trouble_of_this_worker_is_reported_even_if_the_directory_cannot_be_read():
    queue = Queue(PermissionError("no"))
    queue.troubles = [report("me", ReportKind.UNCOVERED)]
    RecoveryThread(queue).round()
    assert list(queue.store.recorder_reports.kept) == ["me"]


@pytest.fixture
def rounds(tmp_path):
    """Rounds of a recovery, at chosen seconds, without its thread."""
    queue, woken, clock = Queue([]), [], SimpleNamespace(now=0.0)
    queue.recorder_dir = tmp_path
    thread = RecoveryThread(
        queue, wake=lambda: woken.append(queue.rounds), monotonic=lambda: clock.now
    )

    def at(second):
        clock.now = second
        before = queue.rounds, queue.looks
        thread.round()
        return queue.rounds - before[0], queue.looks - before[1]

    yield SimpleNamespace(at=at, queue=queue, woken=woken)
    thread.end()


def test_between_whole_rounds_it_looks_for_processes_that_are_gone(rounds):
    assert [rounds.at(second) for second in (0, 1, 2, 59, 60, 61)] == [
        (1, 0), (1, 1), (1, 1), (1, 1), (1, 0), (1, 1),
    ]  # fmt: skip


def test_one_worker_of_a_machine_looks(rounds, tmp_path):
    other = holding(tmp_path)
    assert [rounds.at(second) for second in (0, 1)] == [(1, 0), (0, 0)]
    other.kill()
    other.wait()
    assert rounds.at(2) == (1, 1)


def holding(directory):
    """A process that looks for others."""
    code = (
        "import pathlib, sys, time; from celery_dlq.recorder.owner import Looker; "
        "looker = Looker(pathlib.Path(sys.argv[1])); print(looker.looks(), flush=True); time.sleep(99)"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(directory)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "True\n"
    process.stdout.close()
    return process


def test_other_threads_are_woken_when_messages_were_recovered(rounds):
    rounds.at(0)
    assert rounds.woken == []
    rounds.queue.answers.append([Recovered(letters=1)])
    rounds.queue.answers[:] = rounds.queue.answers[-1:]
    rounds.at(1)
    assert rounds.woken == [2]
