from __future__ import annotations

from types import SimpleNamespace

import pytest
from prometheus_client import CollectorRegistry
from support.factories import letter, parking

from celery_dlq.api.metrics import MetricsAPI
from celery_dlq.errors import MissingExtra, StoreUnavailable
from celery_dlq.metrics import families
from celery_dlq.metrics.families import MOST_SETS
from celery_dlq.metrics.worker import Recording, WorkerMeter, meter_on
from celery_dlq.model.letter import Explanation
from celery_dlq.model.states import Verdict
from celery_dlq.settings import Settings


class Time:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def registry():
    return CollectorRegistry()


@pytest.fixture
def time():
    return Time()


RECORDING = Recording(recorded=5, unrecorded=1, unrecovered=2, age_s=60.5)


@pytest.fixture
def meter(registry, time):
    return WorkerMeter(lambda: 17, lambda: RECORDING, lambda: 1, registry, time)


UNKNOWN = Explanation(verdict=Verdict.TERMINAL, rule="default")

CHARGED = {"task": "shop.charge", "exception": "ValueError", "reason": "terminal"}


def test_a_letter_is_counted_at_once_and_its_capture_when_it_is_safe(meter, registry, time):
    done: list[str] = []
    counted = meter.dead_lettered(letter(), lambda: done.append("safe"))
    assert registry.get_sample_value("celery_dlq_worker_dead_letters_total", CHARGED) == 1
    assert registry.get_sample_value("celery_dlq_worker_capture_seconds_count") == 0
    time.now = 0.3
    counted()
    assert done == ["safe"]
    assert registry.get_sample_value("celery_dlq_worker_capture_seconds_sum") == 0.3


def test_the_numbers_of_the_flight_recorder_are_read_when_they_are_asked_for(meter, registry):
    named = ("recorded_total", "unrecorded_total", "unrecovered", "unrecovered_age_seconds")
    found = [registry.get_sample_value(f"celery_dlq_worker_{name}") for name in named]
    assert found == [5, 1, 2, 60.5]


def test_recovered_messages_are_counted_by_their_outcome(meter, registry):
    for letters, ended in ((2, 0), (1, 5), (0, 0)):
        meter.recovered(letters=letters, ended=ended)
    name = "celery_dlq_worker_recovered_total"
    assert registry.get_sample_value(name, {"outcome": "letter"}) == 3
    assert registry.get_sample_value(name, {"outcome": "ended"}) == 5


def test_a_stall_is_read_when_it_is_asked_for(meter, registry):
    assert registry.get_sample_value("celery_dlq_worker_stalled") == 1


def test_a_parked_retry_is_not_a_dead_letter(meter, registry):
    def safe(): ...

    assert meter.dead_lettered(parking("p", 60), safe) is safe
    assert registry.get_sample_value("celery_dlq_worker_dead_letters_total", CHARGED) is None


def test_retries_are_counted_by_task_and_rule(meter, registry):
    for rule in ("os.closed", "os.closed", ""):
        meter.retried("shop.charge", rule)
    name, task = "celery_dlq_worker_retries_total", "shop.charge"
    assert registry.get_sample_value(name, {"task": task, "rule": "os.closed"}) == 2
    assert registry.get_sample_value(name, {"task": task, "rule": "none"}) == 1


def test_messages_that_were_sent_again_are_counted(meter, registry):
    meter.sent_again(2)
    meter.sent_again(3)
    assert registry.get_sample_value("celery_dlq_worker_sent_again_total") == 5


def test_however_many_names_there_are_the_series_are_bounded(meter, registry):
    for number in range(MOST_SETS + 3):
        meter.retried(f"t{number}", "r")
    name = "celery_dlq_worker_retries_total"
    assert registry.get_sample_value(name, {"task": "other", "rule": "other"}) == 3
    assert registry.get_sample_value(name, {"task": "t0", "rule": "r"}) == 1


def test_writes_are_measured_and_everything_else_goes_through(meter, registry):
    def refuse(outcomes):
        raise StoreUnavailable

    letters = SimpleNamespace(save=lambda letters: "saved", record_outcomes=refuse)
    counts = SimpleNamespace(letters=lambda wanted: 7)
    store = meter.timed(SimpleNamespace(letters=letters, counts=counts))
    assert store.letters.save([]) == "saved"
    with pytest.raises(StoreUnavailable):
        store.letters.record_outcomes([])
    assert store.counts.letters(None) == 7
    name = "celery_dlq_worker_store_seconds_count"
    calls = {call: registry.get_sample_value(name, {"call": call}) for call in ("save", "park")}
    assert calls == {"save": 1, "park": None}
    assert registry.get_sample_value(name, {"call": "record_outcomes"}) == 1


def test_a_count_that_fails_stops_nothing(meter, monkeypatch, caplog):
    def fail(*labels):
        raise OSError("no space left")

    monkeypatch.setattr(meter._letters, "add", fail)
    done: list[str] = []
    meter.dead_lettered(letter(), lambda: done.append("safe"))()
    assert done == ["safe"]
    assert "a metric could not be counted" in caplog.text


def test_exceptions_without_a_rule_are_counted(meter, registry):
    for one in (letter(), letter(explanation=UNKNOWN, exception_type="shop.Busy")):
        meter.dead_lettered(one, lambda: None)
    name, labels = "celery_dlq_worker_unknown_exceptions_total", {"rule": "default"}
    assert registry.get_sample_value(name, labels | {"exception": "shop.Busy"}) == 1
    assert registry.get_sample_value(name, labels | {"exception": "ValueError"}) is None


def test_the_size_of_the_spool_is_read_when_it_is_asked_for(meter, registry):
    assert registry.get_sample_value("celery_dlq_worker_spool_bytes") == 17


def test_a_spool_that_cannot_be_read_has_no_size(registry):
    WorkerMeter(lambda: None, lambda: None, lambda: 0, registry)
    assert registry.get_sample_value("celery_dlq_worker_spool_bytes") is None


def test_exposed_metrics_are_as_documented(meter, registry):
    meter.retried("t", "r")
    meter.recovered(letters=1, ended=0)
    meter.dead_lettered(letter(explanation=UNKNOWN), lambda: None)
    meter.timed(SimpleNamespace(save=lambda letters: None)).save([])
    exposed = {
        (family.name, family.type, frozenset(sample.labels) - {"le"})
        for family in registry.collect()
        for sample in family.samples
    }
    assert exposed == {
        (one.name.removesuffix("_total"), one.kind, frozenset(one.labels))
        for one in families.WORKER_FAMILIES
    }


def test_a_process_has_one_meter_however_many_apps_it_has(registry):
    first = meter_on(lambda: 1, lambda: None, lambda: 0, registry)
    assert meter_on(lambda: 2, lambda: None, lambda: 0, registry) is first


class Queue(MetricsAPI):
    settings = Settings(worker_metrics=True)


def test_nothing_is_counted_by_default():
    class Silent(MetricsAPI):
        settings = Settings()

    assert Silent().meter is None


def test_without_the_extra_a_worker_says_what_to_install(monkeypatch):
    monkeypatch.setattr(families, "find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match=r"pip install 'celery-dlq\[prometheus\]'"):
        Queue().meter  # noqa: B018
