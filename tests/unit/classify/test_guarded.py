"""Code of unknown origin: what it may do to the classifier, and how long."""

import gc
import threading
import weakref
from enum import Enum
from types import SimpleNamespace
from unittest.mock import MagicMock

import pytest

from celery_dlq.classify import decide, guarded
from celery_dlq.classify.evidence import message
from celery_dlq.classify.guarded import Memory, begin, call, is_known, may_have, read, shape_of


@pytest.fixture(autouse=True)
def little_patience(monkeypatch):
    monkeypatch.setattr(guarded, "PATIENCE_S", 0.02)
    begin()


@pytest.fixture
def much_patience(monkeypatch, little_patience):
    """For code that answers: a busy machine may let it wait."""
    monkeypatch.setattr(guarded, "PATIENCE_S", 60.0)
    monkeypatch.setattr(guarded, "DECISION_S", 600.0)
    begin()


@pytest.fixture
def stop():
    event = threading.Event()
    yield event
    event.set()


def spinning(self):
    while True:
        pass


def of_known_origin(cls):
    cls.__module__ = "requests.exceptions"
    return cls


# -- code that hangs gives no evidence --------------------------------------------------------------


HUNG = [
    "response", "status_code", "sqlstate", "orig", "reason", "retryable", "code", "exceptions", "headers",
    "retry_after",
]  # fmt: skip


@pytest.mark.parametrize("name", HUNG)
def test_a_property_that_waits_for_ever(stop, name):
    kind = type("Waiting", (Exception,), {name: property(lambda self: stop.wait())})
    assert decide(kind()).rule == "default"


@pytest.mark.parametrize("name", HUNG)
def test_a_property_that_loops_for_ever(name):
    kind = type("Looping", (Exception,), {name: property(spinning)})
    assert decide(kind()).rule == "default"


def test_the_other_evidence_still_counts(stop, much_patience, monkeypatch):
    monkeypatch.setattr(guarded, "PATIENCE_S", 0.2)

    class Waiting(Exception):
        http_status = property(lambda self: 503)

        @property
        def status_code(self):
            monkeypatch.setattr(guarded, "PATIENCE_S", 60.0)  # the other one answers
            stop.wait()

    for _ in range(3):
        assert decide(Waiting()).evidence == "status=503 from http_status"


def test_its_base_classes_still_count(stop):
    kind = type("Waiting", (ConnectionError,), {"headers": property(lambda self: stop.wait())})
    decision = decide(kind())
    assert (decision.rule, decision.retry_after) == ("os.network", None)


def test_getattr_and_getattribute_that_wait(stop):
    for name in ("__getattr__", "__getattribute__"):
        kind = type("Waiting", (ValueError,), {name: lambda self, asked: stop.wait()})
        assert decide(kind()).rule == "python.error"


def test_a_message_that_never_ends(stop):
    class Waiting(OSError):
        def __str__(self):
            stop.wait()

    class Word:
        __str__ = Waiting.__str__

    assert message(Waiting()) == ""
    assert decide(OSError(Word())).rule == "default"


def test_a_method_that_waits(stop):
    class Waiting(Exception):
        def is_retryable(self):
            stop.wait()

        def trailing_metadata(self):
            stop.wait()

    assert decide(Waiting()).rule == "default"


def test_headers_that_wait(stop):
    class Headers(dict):
        def items(self):
            stop.wait()

    exc = Exception()
    exc.response = SimpleNamespace(status_code=503, headers=Headers(a="b"))
    decision = decide(exc)
    assert (decision.rule, decision.retry_after) == ("http.status", None)


def test_a_decision_has_an_end_even_if_everything_waits(stop, monkeypatch):
    monkeypatch.setattr(guarded, "DECISION_S", 0.06)
    begun = []

    def wait(self):
        begun.append(1)
        stop.wait()

    exc = TimeoutError()
    for number in range(30):
        kind = type(f"Waiting{number}", (Exception,), {"orig": property(wait)})
        outer = kind()
        outer.__cause__ = exc
        exc = outer
    assert decide(exc).rule == "os.network"
    assert 1 <= len(begun) <= 4


def test_a_storm_leaves_one_thread_behind(stop):
    kind = type("Waiting", (Exception,), {"orig": property(lambda self: stop.wait())})
    before = threading.active_count()
    for _ in range(20):
        decide(kind())
    assert threading.active_count() <= before + 1


def test_a_call_that_returned_is_made_again(monkeypatch):
    gate = threading.Event()

    class Slow(Exception):
        @property
        def status_code(self):
            gate.wait()
            return 503

    assert decide(Slow()).rule == "default"
    gate.set()
    for thread in threading.enumerate():
        if thread.name == "celery-dlq-probe":
            thread.join()
    monkeypatch.setattr(guarded, "PATIENCE_S", 60.0)
    monkeypatch.setattr(guarded, "DECISION_S", 60.0)
    assert decide(Slow()).rule == "http.status"


# -- quick code --------------------------------------------------------------------------------------


def test_known_origin_runs_at_once(monkeypatch, much_patience):
    @of_known_origin
    class Known(Exception):
        @property
        def status_code(self):
            return threading.current_thread()

    class Unknown(Exception):
        status_code = property(lambda self: threading.current_thread())
        plain = 503

    here = threading.current_thread()
    assert read(Known(), "status_code") is here
    assert read(Unknown(), "status_code") is not here
    monkeypatch.setattr(guarded, "bounded", None)
    assert read(Unknown(), "plain") == 503


def test_origins():
    assert all(map(is_known, (ValueError, Enum, MagicMock, threading.Thread)))
    assert not is_known(type("Own", (), {"__module__": "shop"}))
    assert not is_known(type("Own", (), {"__module__": None}))


def test_a_property_keeps_its_context(much_patience):
    import contextvars

    request = contextvars.ContextVar("request")
    request.set(503)
    kind = type("Bound", (Exception,), {"status_code": property(lambda self: request.get())})
    assert decide(kind()).rule == "http.status"


def test_foreign_code_within_foreign_code_takes_no_second_thread(much_patience):
    inner = type("Inner", (Exception,), {"status": property(lambda self: threading.get_ident())})
    outer = type(
        "Outer",
        (Exception,),
        {"status": property(lambda self: (threading.get_ident(), read(inner(), "status")))},
    )
    first, second = read(outer(), "status")
    assert first == second != threading.get_ident()


def test_no_thread_no_evidence(monkeypatch):
    def refuse(self):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    kind = type("Unknown", (Exception,), {"status_code": property(lambda self: 503)})
    assert decide(kind()).rule == "default"


def test_may_have():
    class Slotted(Exception):
        __slots__ = ("response",)

    own = Exception()
    own.response = 1
    wanted = frozenset({"response"})
    assert may_have(own, wanted)
    assert may_have(Slotted(), wanted)
    assert may_have(type("All", (Exception,), {"__getattr__": lambda self, name: 1})(), wanted)
    assert not may_have(Exception(), wanted)


def test_call(much_patience):
    class Answering(Exception):
        def good(self):
            return 1

        def bad(self):
            raise SystemExit

        word = "x"

    assert [call(Answering(), name) for name in ("good", "bad", "word", "none")] == [
        1,
        None,
        None,
        None,
    ]
    assert call("x", "upper") == "X"
    assert call("x", "join") is None


# -- what lies -------------------------------------------------------------------------------------


def test_a_property_that_recurses_for_ever(much_patience):
    class Deep(Exception):
        @property
        def status_code(self):
            return self.status_code

    assert decide(Deep()).rule == "default"


class Word(str):
    def __eq__(self, other):
        raise KeyboardInterrupt

    __hash__ = None


LIES = {
    "long": 10**5000, "word": Word("x"), "mock": MagicMock(), "true": True, "enum": Enum("E", "A").A,
    "list": [503],
}  # fmt: skip


@pytest.mark.parametrize("value", LIES.values(), ids=LIES)
@pytest.mark.parametrize("name", ["status_code", "sqlstate", "retryable", "retry_after", "errno"])
def test_values_that_are_not_evidence(name, value):
    exc = Exception()
    setattr(exc, name, value)
    expected = "flag.retryable" if (name, value is True) == ("retryable", True) else "default"
    assert decide(exc).rule == expected


def test_a_class_that_says_it_is_another():
    class Liar(Exception):
        @property
        def __class__(self):
            return ConnectionError

    assert decide(Liar()).rule == "default"


def test_a_class_as_a_response(stop):
    class Meta(type):
        status_code = property(lambda cls: stop.wait())

    exc = Exception()
    exc.response = Meta("Response", (), {})
    assert decide(exc).rule == "default"


def test_a_metaclass_whose_hash_hangs(stop):
    class Meta(type):
        def __hash__(cls):
            stop.wait()

    assert decide(Meta("Own", (ConnectionError,), {})()).rule == "os.network"


def test_memory_lets_classes_go():
    memory = Memory(lambda cls: cls.__name__)
    kind = type("MadeAtRunTime", (), {})
    assert memory(kind) == "MadeAtRunTime"
    watch = weakref.ref(kind)
    del kind
    gc.collect()
    assert watch() is None
    assert not memory._found


def test_shapes_know_slots_and_hidden_names():
    assert "errno" in shape_of(OSError).names
    assert not shape_of(ValueError).foreign
    assert shape_of(MagicMock).answers_all
    assert not shape_of(MagicMock).runs_all
