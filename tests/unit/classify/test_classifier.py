"""The order in which things are asked, groups, hostile exceptions, and what must not decide."""

import errno
import gc
import logging
import sys
import weakref
from datetime import datetime, timezone
from types import SimpleNamespace
from unittest.mock import MagicMock

import pytest

from celery_dlq.classify import Classifier, Decision, Rule, decide
from celery_dlq.model.states import Verdict

TRANSIENT, TERMINAL = Verdict.TRANSIENT, Verdict.TERMINAL


class AppError(Exception):
    def __init__(self, *args, **attributes):
        super().__init__(*args)
        self.__dict__.update(attributes)


class PricingFailed(AppError):
    pass


def caused(outer, cause):
    outer.__cause__ = cause
    return outer


def answered(status, **headers):
    named = {key.replace("_", "-"): value for key, value in headers.items()}
    return AppError(response=SimpleNamespace(status_code=status, headers=named))


def group(*members):
    if sys.version_info >= (3, 11):
        return BaseExceptionGroup("several", members)  # noqa: F821
    return pytest.importorskip("exceptiongroup").BaseExceptionGroup("several", members)


# -- the order ----------------------------------------------------------------------------------


def test_unknown_is_terminal_and_says_so():
    decision = decide(AppError("no idea"))
    assert decision == Decision(
        TERMINAL,
        "default",
        f"no rule for {__name__}.AppError, nor for its causes",
        f"{__name__}.AppError",
    )


def test_the_type_decides_before_the_cause():
    assert decide(caused(KeyError("x"), TimeoutError())).verdict is TERMINAL
    assert decide(caused(TimeoutError(), KeyError("x"))).verdict is TRANSIENT


def test_a_bug_while_handling_a_503_stays_a_bug():
    def handle():
        try:
            raise answered(503)
        except AppError as error:
            return error.args[0]

    with pytest.raises(IndexError) as caught:
        handle()
    assert decide(caught.value).rule == "python.error"


def test_the_carried_evidence_decides_before_the_cause():
    exc = caused(answered(404), TimeoutError())
    assert decide(exc) == Decision(
        TERMINAL, "http.status", "status=404 from response.status_code", f"{__name__}.AppError"
    )


@pytest.mark.parametrize("wrapper", [Exception, RuntimeError, AppError, OSError])
def test_a_wrapper_stands_for_its_cause(wrapper):
    assert decide(caused(wrapper("failed"), ConnectionResetError())).verdict is TRANSIENT
    assert decide(caused(wrapper("failed"), KeyError("x"))).verdict is TERMINAL


def test_the_path_leads_to_the_one_that_decided():
    exc = caused(PricingFailed(), caused(RuntimeError(), ConnectionResetError()))
    path = decide(exc).path
    assert path == f"{__name__}.PricingFailed <- RuntimeError <- ConnectionResetError"


def test_the_context_is_followed_unless_hidden():
    def fail(hide):
        try:
            raise TimeoutError
        except TimeoutError:
            if hide:
                raise PricingFailed from None
            raise PricingFailed  # noqa: B904 - the implicit context is the point

    for hide, verdict in ((False, TRANSIENT), (True, TERMINAL)):
        with pytest.raises(PricingFailed) as caught:
            fail(hide)
        assert decide(caught.value).verdict is verdict


def test_short_names_do_not_match():
    for name in ("TimeoutError", "ConnectionError", "OperationalError"):
        own = type(name, (Exception,), {"__module__": "shop.errors"})
        assert decide(own()).rule == "default"


def test_one_type_gets_different_verdicts_in_any_order():
    for _ in range(2):
        assert decide(answered(503)).verdict is TRANSIENT
        assert decide(answered(404)).verdict is TERMINAL
        assert decide(OSError(111, "refused")).verdict is TRANSIENT
        assert decide(OSError(22, "invalid")).verdict is TERMINAL


def test_sqlstate_of_an_unknown_driver():
    assert decide(AppError(sqlstate="40001")).rule == "pg.sqlstate"
    assert decide(AppError(sqlstate="40001")).verdict is TRANSIENT
    assert decide(AppError(pgcode="23505")).verdict is TERMINAL


# -- how long to wait ---------------------------------------------------------------------------


def test_retry_after_comes_with_the_decision():
    assert decide(answered(429, Retry_After="30")).retry_after == 30.0
    assert decide(answered(503)).retry_after is None
    assert decide(answered(400, Retry_After="30")).retry_after is None


def test_a_date_is_measured_by_the_classifiers_clock():
    classifier = Classifier(now=lambda: datetime(2026, 11, 21, 12, 0, tzinfo=timezone.utc))
    exc = answered(503, Retry_After="Sat, 21 Nov 2026 12:00:45 GMT")
    assert classifier.decide(exc).retry_after == 45.0
    assert classifier.with_rules(Rule(KeyError, "terminal")).decide(exc).retry_after == 45.0


def test_the_wait_is_taken_from_the_one_that_decided():
    exc = caused(AppError(retry_after=99), answered(503, Retry_After="2"))
    assert decide(exc).retry_after == 2.0


@pytest.mark.parametrize("status", [403, 413, 500, 507])
def test_a_time_to_come_back_makes_unclear_answers_transient(status):
    assert decide(answered(status)).verdict is TERMINAL
    assert decide(answered(status, Retry_After="5")).verdict is TRANSIENT
    assert decide(answered(status, Retry_After="soon")).verdict is TERMINAL


@pytest.mark.parametrize("status", [400, 401, 404, 422])
def test_no_time_to_come_back_makes_a_refusal_transient(status):
    assert decide(answered(status, Retry_After="5")).verdict is TERMINAL


def test_a_used_up_rate_limit_is_transient():
    assert decide(answered(403, X_RateLimit_Remaining="0")).verdict is TRANSIENT
    assert decide(answered(403, X_RateLimit_Remaining="12")).verdict is TERMINAL
    assert decide(answered(404, X_RateLimit_Remaining="0")).verdict is TERMINAL


# -- groups -------------------------------------------------------------------------------------


def test_a_group_is_transient_when_all_its_members_are():
    assert decide(group(TimeoutError(), ConnectionResetError())).verdict is TRANSIENT
    assert decide(group(TimeoutError(), ValueError())).verdict is TERMINAL
    assert decide(group(TimeoutError(), AppError())).rule == "default"
    assert decide(group(KeyboardInterrupt())).rule == "python.exit"


def test_members_are_judged_with_their_causes():
    assert decide(group(caused(AppError(), TimeoutError()), TimeoutError())).verdict is TRANSIENT


def test_members_may_share_a_cause():
    cause = TimeoutError()
    exc = group(caused(AppError("a"), cause), caused(AppError("b"), cause))
    assert decide(exc).verdict is TRANSIENT


def test_the_longest_wait_of_a_group_counts():
    exc = group(answered(429, Retry_After="3"), answered(503, Retry_After="40"), TimeoutError())
    assert decide(exc).retry_after == 40.0


def test_the_path_into_a_group():
    names = decide(group(TimeoutError(), group(KeyError("x")))).path.split(" <- ")
    assert [name.removeprefix("exceptiongroup.") for name in names] == [
        "ExceptionGroup",
        "ExceptionGroup",
        "KeyError",
    ]


def test_a_group_below_a_wrapper():
    assert decide(caused(AppError(), group(TimeoutError()))).verdict is TRANSIENT
    assert decide(caused(AppError(), group(TimeoutError(), KeyError()))).verdict is TERMINAL


@pytest.mark.parametrize(("leaf", "verdict"), [(TimeoutError(), TRANSIENT), (KeyError(), TERMINAL)])
def test_groups_nest_hundreds_deep(leaf, verdict):
    exc = leaf
    for _ in range(700):
        exc = group(exc)
    assert decide(exc).verdict is verdict


def test_more_than_can_be_looked_at_is_terminal():
    assert decide(group(*[TimeoutError() for _ in range(5_000)])).verdict is TERMINAL
    exc = TimeoutError()
    for _ in range(5_000):
        exc = caused(AppError(), exc)
    assert decide(exc).verdict is TERMINAL


def test_a_group_that_holds_itself():
    def looped(message, members):
        return type(
            "Looped",
            (type(group(KeyError())),),
            {"exceptions": property(lambda self: (self,))},
        )(message, members)

    assert decide(looped("loop", [KeyError()])).rule == "default"


def test_the_backport_is_known_by_name():
    class BaseExceptionGroup(Exception):
        exceptions = (TimeoutError(), TimeoutError())

    BaseExceptionGroup.__module__ = "exceptiongroup"
    BaseExceptionGroup.__qualname__ = "BaseExceptionGroup"
    assert decide(BaseExceptionGroup()).verdict is TRANSIENT


def test_an_application_class_with_members_is_not_a_group():
    assert decide(AppError(exceptions=(TimeoutError(),))).rule == "default"


@pytest.mark.skipif(sys.version_info < (3, 11), reason="groups are builtins from Python 3.11 on")
def test_a_rule_for_the_group_itself_comes_first():
    classifier = Classifier((Rule("BaseExceptionGroup", "transient", name="mine"),))
    assert classifier.decide(group(KeyError("x"))).rule == "mine"


# -- network errors -----------------------------------------------------------------------------

NETWORK = type("ConnectionError", (Exception,), {"__module__": "requests.exceptions"})
CERTIFICATE = __import__("ssl").SSLCertVerificationError(1, "self-signed")
UNKNOWN_HOST = __import__("socket").gaierror(-2, "Name or service not known")


@pytest.mark.parametrize("root", [CERTIFICATE, UNKNOWN_HOST])
def test_a_network_error_is_terminal_over_a_lasting_cause(root):
    hidden = AppError()
    hidden.__context__, hidden.__suppress_context__ = root, True
    for exc in (caused(NETWORK(), root), NETWORK(root), caused(NETWORK(), hidden)):
        decision = decide(exc)
        assert decision.verdict is TERMINAL
        assert decision.path.endswith(type(root).__name__)
    assert decide(NETWORK("Max retries exceeded")).verdict is TRANSIENT


def test_other_terminal_exceptions_below_a_network_error_do_not_count():
    for inner in (KeyError("cache"), FileNotFoundError(2, "x"), answered(404)):
        assert decide(caused(NETWORK(), inner)).verdict is TRANSIENT


def test_a_user_rule_may_call_a_lasting_cause_transient():
    classifier = Classifier((Rule("socket.gaierror", "transient", name="flapping dns"),))
    assert classifier.decide(caused(NETWORK(), UNKNOWN_HOST)).verdict is TRANSIENT
    assert classifier.decide(caused(NETWORK(), CERTIFICATE)).verdict is TERMINAL


# -- hostile exceptions -------------------------------------------------------------------------


class Hostile(Exception):
    def __getattribute__(self, name):
        raise SystemExit(name)

    def __str__(self):
        raise KeyboardInterrupt

    __repr__ = __str__

    def __bool__(self):
        raise RuntimeError

    def __eq__(self, other):
        raise RuntimeError

    def __hash__(self):
        raise RuntimeError


class HostileOSError(Hostile, OSError):
    pass


@pytest.mark.parametrize("kind", [Hostile, HostileOSError])
def test_an_exception_that_raises_at_everything(kind):
    for exc in (kind(), caused(AppError(), kind())):
        decision = decide(exc)
        assert decision.rule == "default"
        assert decision.evidence.startswith("no rule for")


def test_a_metaclass_that_raises_at_everything():
    class Meta(type):
        def __hash__(cls):
            raise RuntimeError

        def __eq__(cls, other):
            raise RuntimeError

        def __instancecheck__(cls, instance):
            raise RuntimeError

        def __getattribute__(cls, name):
            raise RuntimeError

    unhashable = Meta("Unhashable", (ConnectionError,), {})
    classifier = Classifier((Rule("shop.Other", "transient"), Rule(KeyError, "transient")))
    assert classifier.decide(unhashable()).rule == "os.network"


def test_mocks_carry_no_evidence():
    exc = AppError(response=MagicMock(), status_code=MagicMock(), sqlstate=MagicMock())
    assert decide(exc).rule == "default"


def test_a_str_that_raises_is_not_called_at_all_where_no_rule_is_about_text():
    class Mute(ValueError):
        def __str__(self):
            raise AssertionError("str() was called")

    assert decide(Mute()).rule == "python.error"


def test_the_message_of_an_os_error_may_raise():
    class Mute:
        def __str__(self):
            raise SystemExit

    assert decide(OSError(Mute())).rule == "default"


def test_celerys_stand_in_for_what_cannot_be_pickled():
    from celery.utils.serialization import UnpickleableExceptionWrapper

    for module, name in (("shop.errors", "Lost"), ("builtins", "len"), ("builtins", "none")):
        assert decide(UnpickleableExceptionWrapper(module, name, (), "x")).rule == "default"
    stand_in = UnpickleableExceptionWrapper("builtins", "ConnectionResetError", (), "lost")
    assert decide(stand_in) == Decision(
        TRANSIENT,
        "os.network",
        "type=ConnectionError, which cannot be pickled",
        "celery.utils.serialization.UnpickleableExceptionWrapper",
    )


@pytest.mark.parametrize(
    ("module", "name", "args", "verdict", "rule"),
    [
        ("builtins", "OSError", (errno.ECONNREFUSED, "x"), TRANSIENT, "os.errno"),
        ("builtins", "OSError", (errno.EINVAL, "x"), TERMINAL, "os.errno"),
        ("builtins", "ExceptionGroup", ("x", "not a list"), TERMINAL, "default"),
        ("pymysql.err", "OperationalError", (1213, "Deadlock found"), TRANSIENT, "mysql.errno"),
        ("pymysql.err", "OperationalError", (1054, "Unknown column"), TERMINAL, "mysql.errno"),
        ("stripe._error", "RateLimitError", ("x",), TRANSIENT, "stripe.rate"),
        ("stripe._error", "CardError", ("x",), TERMINAL, "stripe.answer"),
        ("requests.exceptions", "HTTPError", ("503 Server Error",), TERMINAL, "default"),
    ],
)
def test_celerys_stand_in_by_its_arguments(module, name, args, verdict, rule):
    from celery.utils.serialization import UnpickleableExceptionWrapper

    pytest.importorskip(module)
    decision = decide(UnpickleableExceptionWrapper(module, name, args, "x"))
    assert (decision.verdict, decision.rule) == (verdict, rule)


def test_celerys_rebuilt_exceptions_are_not_taken_for_others():
    from celery.utils.serialization import create_exception_cls

    rebuilt = create_exception_cls("OperationalError", "celery.exceptions")
    assert decide(rebuilt("deadlock detected")).rule == "default"


def test_a_cause_cycle():
    one, two = AppError("one"), AppError("two")
    one.__cause__, two.__cause__ = two, one
    assert decide(one).rule == "default"
    two.reason = TimeoutError()
    assert decide(one).verdict is TRANSIENT


def test_celery_retry_holds_itself():
    from celery.exceptions import Retry

    exc = Retry("again")
    exc.args = (exc,)
    assert decide(exc).rule == "default"


def test_a_failure_of_the_classifier_itself_is_terminal_and_logged(caplog):
    def no_clock():
        raise RuntimeError("no clock")

    with caplog.at_level(logging.WARNING):
        exc = answered(503, Retry_After="Sat, 21 Nov 2026 12:00:45 GMT")
        decision = Classifier(now=no_clock).decide(exc)
    assert decision.verdict is TERMINAL
    assert decision.evidence == "classification failed with RuntimeError"
    assert "Classification failed" in caplog.text


def test_types_are_not_kept_alive():
    kind = type("MadeAtRunTime", (ConnectionError,), {})
    assert decide(kind()).verdict is TRANSIENT
    watch = weakref.ref(kind)
    del kind
    gc.collect()
    assert watch() is None


def test_the_stored_form_is_bounded_and_storable():
    decision = Decision(TERMINAL, "rule\x00", "e" * 900, "p\ud800" * 400)
    explanation = decision.explanation()
    assert explanation.verdict is TERMINAL
    assert explanation.rule == "rule\\u0000"
    assert len(explanation.evidence) <= 500
    assert len(explanation.path) <= 500
    explanation.path.encode("utf-8")


def test_nothing_is_imported():
    before = set(sys.modules)
    decide(caused(AppError(), caused(NETWORK(), answered(503))))
    assert set(sys.modules) == before
