import http
from enum import Enum
from unittest.mock import MagicMock, Mock

import pytest

from celery_dlq.classify.evidence import (
    bases,
    dotted_name,
    is_a,
    number,
    os_errno,
    read,
    shown_name,
    sqlstate,
    status,
    tells_its_class,
    text_of,
    vendor_code,
)


class Carrier(Exception):
    """An application's exception with attributes of all kinds."""

    def __init__(self, *args, **attributes):
        super().__init__(*args)
        self.__dict__.update(attributes)


class Answer:
    def __init__(self, **attributes):
        self.__dict__.update(attributes)


class Text(str):
    """A string that lies about everything."""

    def __eq__(self, other):
        raise RuntimeError("compared")

    def __hash__(self):
        raise RuntimeError("hashed")

    def __str__(self):
        return "200"

    def startswith(self, *args):
        return True


class Raising:
    def __init__(self, error):
        self.error = error

    @property
    def status_code(self):
        raise self.error


class Code(Enum):
    UNAVAILABLE = 503
    NOTHING = "nothing"


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (503, 503),
        (503.0, 503),
        ("503", 503),
        (b"503", 503),
        ("503 Service Unavailable", 503),
        (http.HTTPStatus.SERVICE_UNAVAILABLE, 503),
        (Code.UNAVAILABLE, 503),
        pytest.param(Text("503"), 503, id="str subclass"),
        (True, None),
        (503.5, None),
        (float("nan"), None),
        (float("inf"), None),
        ("503001", 503001),
        ("503x", None),
        ("²", None),
        ("٥٠٣", None),
        ("N/A", None),
        ("", None),
        (None, None),
        (Code.NOTHING, None),
        (MagicMock(), None),
        ([503], None),
        pytest.param(9**9999, None, id="huge"),
        pytest.param(1e300, None, id="huge float"),
        pytest.param("5" * 5000, None, id="long"),
    ],
)
def test_number(value, expected):
    assert number(value) == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("plain", "plain"),
        pytest.param(Text("mine"), "mine", id="str subclass"),
        (b"caf\xe9", "café"),
        pytest.param("x" * 5000, "x" * 1024, id="long"),
        (bytearray(b"x"), None),
        (MagicMock(), None),
        (7, None),
    ],
)
def test_text_of(value, expected):
    text = text_of(value)
    assert text == expected
    assert text is None or type(text) is str


@pytest.mark.parametrize("error", [ValueError("no"), SystemExit(1), KeyboardInterrupt()])
def test_read_survives_properties_that_raise(error):
    assert read(Raising(error), "status_code") is None


def test_read_follows_a_path_and_stops_at_none():
    assert read(Answer(response=Answer(status=5)), "response", "status") == 5
    assert read(Answer(response=None), "response", "status") is None
    assert read(Answer(), "response", "status") is None


def test_read_takes_no_truth_value():
    class Falsy:
        status_code = 503

        def __bool__(self):
            return False

    assert status(Carrier(response=Falsy())) == (503, "response.status_code")


@pytest.mark.parametrize(
    ("exc", "expected"),
    [
        (Carrier(response=Answer(status_code=503)), (503, "response.status_code")),
        (Carrier(status_code=429), (429, "status_code")),
        (Carrier(http_status=502), (502, "http_status")),
        (Carrier(status="504 Gateway Timeout"), (504, "status")),
        (Carrier(response=Answer(status=404)), (404, "response.status")),
        (Carrier(response_code=500), (500, "response_code")),
        (Carrier(code=410), (410, "code")),
        (Carrier(response={"status_code": 503}), None),
        (Carrier(status_code=200), None),
        (Carrier(status_code=600), None),
        (Carrier(status_code=-503), None),
        (Carrier(status="OVER_QUERY_LIMIT", code="e3q8"), None),
        (Carrier(status_code="TIMEOUT"), None),
        (Carrier(response=MagicMock(), code=MagicMock()), None),
        (Carrier(status_code=True), None),
        (Carrier(status_code="N/A", code=503), (503, "code")),
    ],
)
def test_status(exc, expected):
    assert status(exc) == expected


@pytest.mark.parametrize(
    ("exc", "expected"),
    [
        (Carrier(sqlstate="40001"), ("40001", "sqlstate")),
        (Carrier(pgcode="57P01"), ("57P01", "pgcode")),
        (Carrier(sqlstate=None, pgcode="23505"), ("23505", "pgcode")),
        (Carrier(sqlstate=Text("40P01")), ("40P01", "sqlstate")),
        (Carrier(sqlstate=40001), None),
        (Carrier(sqlstate="4000"), None),
        (Carrier(sqlstate="400011"), None),
        (Carrier(sqlstate="40001\n"), None),
        (Carrier(sqlstate=MagicMock()), None),
        (Carrier(), None),
    ],
)
def test_sqlstate(exc, expected):
    assert sqlstate(exc) == expected


def test_errno_of_an_os_error():
    assert os_errno(OSError(111, "refused")) == 111
    assert os_errno(OSError("text only")) is None
    assert os_errno(OSError(0, "no error")) is None
    assert os_errno(Carrier(errno=True)) is None
    assert os_errno(Carrier(errno=9**9999)) is None


def test_vendor_code_prefers_errno_over_the_first_argument():
    assert vendor_code(Carrier(1205, "lock wait")) == (1205, "args[0]")
    assert vendor_code(Carrier("text", errno=2013)) == (2013, "errno")
    assert vendor_code(Carrier("1205")) is None
    assert vendor_code(Carrier(True)) is None
    assert vendor_code(Carrier(9**9999)) is None
    assert vendor_code(Carrier()) is None


def test_names_are_taken_past_a_lying_metaclass():
    class Lying(type):
        @property
        def __module__(cls):
            return "redis.exceptions"

        @property
        def __mro__(cls):
            raise RuntimeError("no bases")

    class Broken(Exception, metaclass=Lying):
        pass

    assert bases(Broken) == (Broken, Exception, BaseException)
    assert dotted_name(Broken).endswith(".Broken")
    assert "redis" not in dotted_name(Broken)


def test_names_of_classes_that_hide_theirs():
    hidden = type("Hidden", (Exception,), {"__module__": None})
    assert dotted_name(hidden) == "?.Hidden"
    assert shown_name(ValueError) == "ValueError"
    assert dotted_name(ValueError) == "builtins.ValueError"


class Posing(ValueError):
    @property
    def __class__(self):
        raise SystemExit


class PosingByLookup(ValueError):
    def __getattribute__(self, name):
        return KeyboardInterrupt if name == "__class__" else super().__getattribute__(name)


class PosingByAttribute(ValueError):
    __class__ = KeyboardInterrupt


# Made where it is needed: pytest, too, asks what it is.
POSING = {
    "property": lambda: Posing(),
    "lookup": lambda: PosingByLookup(),
    "attribute": lambda: PosingByAttribute(),
    "mock": lambda: Mock(spec=ValueError),
}
HONEST = [ValueError(), OSError(2, "no"), KeyboardInterrupt(), StopIteration(), object(), 7]


@pytest.mark.parametrize("how", POSING)
def test_a_false_class_is_noticed_without_asking_the_object(how):
    value = POSING[how]()
    assert not tells_its_class(value)
    assert not is_a(value, (KeyboardInterrupt, SystemExit))
    assert is_a(value, ValueError) == (how != "mock")


@pytest.mark.parametrize("value", HONEST, ids=lambda value: type(value).__name__)
def test_nearly_everything_tells_its_class(value):
    assert tells_its_class(value)
    assert is_a(value, type(value))
