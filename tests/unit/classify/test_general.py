"""Exceptions of libraries that no rule knows: what they carry, and then their names."""

import enum
import http.client
import socket
import ssl
import sys
from types import ModuleType, SimpleNamespace

import pytest
import requests

from celery_dlq.classify import Classifier, decide
from celery_dlq.classify.general import General


@pytest.fixture
def library(monkeypatch):
    """Makes exception classes of an installed package."""
    module = ModuleType("somelib")
    module.__file__ = "/usr/lib/python3/site-packages/somelib/__init__.py"
    monkeypatch.setitem(sys.modules, "somelib", module)

    def library(name, *bases, **members):
        return type(name, bases or (Exception,), {"__module__": "somelib.errors"} | members)

    return library


def failed(kind, *args, **own):
    exc = kind(*args)
    exc.__dict__.update(own)
    return exc


def judged(exc):
    decision = decide(exc)
    return decision.verdict.value, decision.rule


class Code(enum.IntEnum):
    OK = 0
    UNAVAILABLE = 14


@pytest.mark.parametrize(
    ("own", "rule"),
    [
        ({"http_code": 503}, "http.status"),
        ({"httpStatusCode": "429"}, "http.status"),
        ({"error_code": 503}, "http.status"),
        ({"body": {"error": {"code": 503}}}, "http.status"),
        ({"details": {"status": 429}}, "http.status"),
        ({"resp": SimpleNamespace(status=502)}, "http.status"),
        ({"state": "40001"}, "pg.sqlstate"),
        ({"code": "40P01"}, "pg.sqlstate"),
        ({"code": Code.UNAVAILABLE}, "grpc.code"),
        ({"code": "UNAVAILABLE"}, "grpc.code"),
        ({"code": "StatusCode.UNAVAILABLE"}, "grpc.code"),
        ({"temporary": True}, "flag.retryable"),
        ({"error_code": "TEMPORARILY_UNAVAILABLE"}, "code.word"),
        ({"body": {"error": {"type": "rate_limit_error"}}}, "code.word"),
        ({"last_failure": TimeoutError()}, "os.network"),
        ({"retry_after": 30}, "retry.after"),
        ({"_status_code": 503}, "http.status"),
        ({"C": "40001"}, "pg.sqlstate"),
        ({"details": {"S": "ERROR", "C": "40P01"}}, "pg.sqlstate"),
        ({"error_code": SimpleNamespace(http_error_code=503)}, "http.status"),
        ({"error": SimpleNamespace(statusCode=429)}, "http.status"),
        ({"response_info": SimpleNamespace(status_code=502)}, "http.status"),
        ({"retry_after_s": 30}, "retry.after"),
    ],
)
def test_evidence_under_other_names(library, own, rule):
    assert judged(failed(library("ApiError"), "x", **own)) == ("transient", rule)


@pytest.mark.parametrize(
    "own",
    [
        {"http_code": 404},
        {"code": 17},
        {"code": "23505"},
        {"state": "XX001"},
        {"temporary": False},
        {"error_code": "INVALID_GRANT"},
        {"body": {"error": {"code": 200}}},
        {"message": "503 Service Unavailable"},
        {"code": True},
        {"retry_after": 0},
        {"http_code": 400, "retry_after": 30},
        {"C": "23505"},
        {"error_code": SimpleNamespace(http_error_code=404)},
        {"error": SimpleNamespace(code=503, status="timeout")},
        {"retry_after_days": 30},
    ],
)
def test_other_evidence_is_terminal(library, own):
    assert judged(failed(library("ApiError"), "x", **own))[0] == "terminal"


def test_the_first_argument_of_an_api_or_http_error_is_its_status(library):
    for name in ("ApiError", "HTTPException", "BankAPIException"):
        assert judged(library(name)(503, "busy")) == ("transient", "http.status")
        assert judged(library(name)(404, "busy")) == ("terminal", "http.status")
    own = type("ApiError", (Exception,), {"__module__": "shop.errors"})
    assert judged(own(503, "busy")) == ("transient", "http.status")


def test_another_first_argument_is_no_status(library):
    api = library("ApiError")
    for exc in (
        api("503 orders failed"),
        api(17, 503),
        api(True),
        library("OrderNotFound", api)(503),
        library("OrderError")(503),
    ):
        assert judged(exc) == ("terminal", "default")


def test_methods_and_properties_are_read(library):
    by_method = library("ApiError", get_status=lambda self: 503)
    by_property = library("ApiError", is_temporary=property(lambda self: True))
    assert judged(by_method("x")) == ("transient", "http.status")
    assert judged(by_property("x")) == ("transient", "flag.retryable")


def test_methods_that_need_something_are_not_called(library):
    async def code(self):
        """Nothing would await it."""

    for method in (code, lambda self, _server: 503):
        assert judged(library("ApiError", code=method)("x")) == ("terminal", "default")


@pytest.mark.parametrize("value", [RuntimeError("x"), SystemExit(3)])
def test_methods_that_raise_say_nothing(library, value):
    def get_status(self):
        raise value

    assert judged(library("ApiError", get_status=get_status)("x")) == ("terminal", "default")


def test_a_default_of_the_class_is_no_statement(library):
    assert judged(library("ConnectionTimeout", temporary=False)("x")) == ("transient", "class.name")


def test_names(library):
    assert judged(library("ConnectionTimeout")("x")) == ("transient", "class.name")
    assert judged(library("Failed", library("ConnectionTimeout"))("x")) == (
        "transient",
        "class.name",
    )
    evidence = decide(library("RateLimitExceeded")("x")).evidence
    assert evidence == "name=RateLimitExceeded says 'rate limit'"


def test_a_nearer_lasting_word_silences_the_names_above_it(library):
    assert judged(library("InvalidLogin", library("ConnectionError"))("x"))[1] == "default"


def test_a_certificate_or_an_unknown_host_wins(library):
    for cause, rule in (
        (ssl.SSLCertVerificationError(1, "x"), "tls.certificate"),
        (socket.gaierror(socket.EAI_NONAME, "x"), "dns.lookup"),
    ):
        exc = library("ConnectTimeout")("x")
        exc.__context__, exc.__suppress_context__ = cause, True
        assert judged(exc) == ("terminal", rule)


def test_a_code_that_only_the_library_understands_silences_the_name(library):
    assert judged(failed(library("ConnectionTimeout"), "x", code=1205)) == ("terminal", "default")


def test_the_users_own_names_need_a_setting():
    own = type("ConnectionTimeout", (Exception,), {"__module__": "shop.errors"})
    assert judged(own("x")) == ("terminal", "default")
    assert Classifier(general=General(by_own_names=True)).decide(own("x")).rule == "class.name"


def test_the_package_of_the_task_is_the_users_own(library):
    exc = library("ConnectionTimeout")("x")
    assert Classifier().of_package("somelib").decide(exc).rule == "default"


def test_an_own_code_needs_a_second_sign():
    plain = type("Unsold", (Exception,), {"__module__": "shop.errors"})
    assert judged(failed(plain, "x", error_code=503)) == ("terminal", "default")
    assert judged(failed(plain, "x", error_code=503, url="https://a.test"))[0] == "transient"


def test_a_reply_of_another_protocol_is_no_status(library):
    assert judged(failed(library("FTPError"), "x", error_code=503)) == ("terminal", "default")
    assert judged(failed(library("FTPTimeout", OSError), "x", errno=421))[0] == "transient"


def test_a_name_with_a_word_of_another_protocol_may_speak_http(library):
    answers = (
        failed(library("MailChimpError"), {"status": 503, "title": "busy"}),
        failed(library("MailChimpError"), "x", status=429),
        failed(library("SMTP2GoApiError"), "x", code=503),
        failed(library("SMTPRelayError"), "x", http_code=503),
    )
    for exc in answers:
        assert judged(exc) == ("transient", "http.status")
    assert judged(failed(library("SMTPRelayError"), "x", code=503))[0] == "terminal"


def test_the_module_that_raised_decides_whose_code_it_is(library):
    def raised_by(name):
        def its(exc):
            with pytest.raises(type(exc)) as info:
                exec("raise exc", {"__name__": name, "exc": exc})
            return info.value

        return its

    exc = failed(RuntimeError, "x", status=503)
    of_library, own = raised_by("somelib.client"), raised_by("shop.tasks")
    assert judged(exc)[0] == "terminal"
    assert judged(own(exc))[0] == "terminal"
    exc = of_library(failed(RuntimeError, "x", status=503))
    assert judged(exc) == ("transient", "http.status")
    assert Classifier().of_package("somelib").decide(exc).rule == "default"


@pytest.mark.parametrize(
    "base",
    [
        http.client.HTTPException,
        ValueError,
        FileNotFoundError,
        requests.exceptions.ContentDecodingError,
    ],
)
def test_a_code_of_a_derived_class_counts_more_than_the_rule_of_its_base(library, base):
    kind = library("Refused", base)
    for own in ({"status_code": 503}, {"code": 429}, {"body": {"http_status": 504}}):
        assert judged(failed(kind, "x", **own)) == ("transient", "http.status")
    assert judged(failed(kind, "x", code=17))[0] == "terminal"
    assert judged(failed(kind, "x", name="timeout"))[0] == "terminal"
    assert judged(failed(base, "x", code=429))[0] == "terminal"


def test_a_refusal_of_a_derived_class_counts_more_than_a_network_error(library):
    kind = library("Lost", requests.exceptions.ConnectionError)
    assert judged(kind("x")) == ("transient", "http.network")
    assert judged(failed(kind, "x", code=404)) == ("terminal", "http.status")
    exc = failed(kind, "x", code=17)
    exc.__cause__ = ssl.SSLCertVerificationError(1, "x")
    assert judged(exc) == ("terminal", "tls.certificate")


def test_the_nearest_evidence_of_a_chain_decides(library):
    inner, outer = (
        failed(library("A"), "x", http_code=503),
        failed(library("B"), "x", http_code=404),
    )
    outer.__cause__ = inner
    assert judged(outer)[0] == "terminal"
    inner.__cause__, outer.__cause__ = outer, None
    assert judged(inner)[0] == "transient"


@pytest.mark.parametrize(
    "text", ["Name or service not known: 'x'", "no records found for hostname x"]
)
def test_an_unknown_host_without_a_code(text):
    assert judged(socket.gaierror(text)) == ("terminal", "dns.lookup")


def test_a_resolver_that_does_not_answer():
    exc = socket.gaierror("unable to resolve 'x' within 5.0s")
    assert judged(exc) == ("transient", "dns.lookup")


def test_a_500_on_top_of_another_exception_says_less_than_that_one(library):
    exc = failed(library("ApiError"), "x", status_code=500)
    assert judged(exc) == ("terminal", "http.status")
    exc.__cause__ = ConnectionResetError(104, "reset")
    assert judged(exc) == ("transient", "os.network")
    exc.__cause__ = ValueError("bad JSON")
    assert judged(exc) == ("terminal", "python.error")
    refused = failed(library("ApiError"), "x", status_code=400)
    refused.__cause__ = ConnectionResetError(104, "reset")
    assert judged(refused) == ("terminal", "http.status")


def test_the_default_verdict_shows_the_codes_that_nothing_reads(library):
    kind = library("QueueError")
    exc = failed(kind, "x", code=17, reason="QUEUE_FULL", detail="a whole sentence", email="a@b.c")
    assert decide(exc).evidence == (
        "no rule for somelib.errors.QueueError, nor for its causes; somelib.errors.QueueError carries "
        "code=17, reason=QUEUE_FULL"
    )
    huge = failed(kind, "x", code=10**5000, status=Code.OK, retryable=None)
    assert decide(huge).evidence.endswith("carries status=OK")
    assert decide(kind("x")).evidence.endswith("nor for its causes")


def test_a_metaclass_with_a_name_of_its_own_is_not_asked(library):
    class Hostile(type):
        @property
        def __name__(cls):
            raise SystemExit

    kind = Hostile(
        "BankTimeout", (Exception,), {"__module__": "somelib.errors", "__qualname__": "BankTimeout"}
    )
    assert decide(kind("x")).rule == "class.name"


def test_methods_are_called_once(library):
    calls = []

    def get_status(self):
        calls.append(1)
        return 7

    decide(library("ApiTimeout", get_status=get_status)("x"))
    assert len(calls) == 1


def raised(exc, cause):
    exc.__cause__ = cause
    return exc


def test_a_bare_connection_error_asks_the_error_behind_it(library):
    refused = failed(library("HTTPError"), "x", response=SimpleNamespace(status_code=403))
    for bare in (ConnectionError, TimeoutError):
        assert judged(raised(bare("x"), refused)) == ("terminal", "http.status")
        assert judged(raised(bare("x"), socket.gaierror(socket.EAI_NONAME, "x")))[0] == "terminal"
        assert judged(raised(bare("x"), ssl.SSLCertVerificationError("x")))[1] == "tls.certificate"
        assert judged(raised(bare("x"), KeyError("x"))) == ("transient", "os.network")
        assert judged(bare("x")) == ("transient", "os.network")
    busy = failed(library("HTTPError"), "x", response=SimpleNamespace(status_code=503))
    assert judged(raised(ConnectionError("x"), busy)) == ("transient", "os.network")
    assert judged(raised(ConnectionResetError(104, "x"), refused)) == ("transient", "os.network")


def test_a_class_derived_from_that_of_a_known_library_may_carry_its_own_status(library):
    kind = library("HTTPError", requests.exceptions.HTTPError)
    assert judged(failed(kind, "x", status_code=429)) == ("transient", "http.status")
