import sys

import pytest

from celery_dlq.classify import Classifier, Rule, TypeExplanation, explain_type
from celery_dlq.errors import CeleryDLQError
from celery_dlq.model.states import Verdict


class AppError(Exception):
    class Inner(Exception):
        pass


@pytest.fixture(autouse=True)
def importable(monkeypatch):
    monkeypatch.setitem(sys.modules, "shop_errors", sys.modules[__name__])
    monkeypatch.setattr(AppError, "__module__", "shop_errors")


def test_a_constant_type():
    assert explain_type("ValueError") == TypeExplanation(
        "ValueError", ("python.error",), Verdict.TERMINAL, ""
    )
    assert explain_type("http.client.RemoteDisconnected").verdict is Verdict.TRANSIENT
    assert explain_type("imaplib.IMAP4.abort").rules == ("imap.abort",)


def test_the_name_may_be_one_it_is_imported_by():
    assert explain_type("queue.Full").type_name == "queue.Full"
    assert explain_type("ssl.CertificateError").type_name == "ssl.SSLCertVerificationError"


def test_a_probed_type_names_what_it_depends_on():
    explained = explain_type("sqlite3.OperationalError")
    assert explained.verdict is None
    assert explained.rules[:1] == ("sqlite.code",)
    assert "sqlite_errorcode" in explained.depends_on


def test_an_http_carrier():
    explained = explain_type("urllib.error.HTTPError")
    assert explained.verdict is None
    assert explained.rules == ("http.status", "urllib.reason", "os.errno", "default")
    assert explained.depends_on.startswith("the status in code, then ")


def test_a_network_type():
    explained = explain_type("redis.exceptions.ConnectionError")
    assert explained.verdict is None
    assert explained.rules == ("redis.network",)
    assert explained.depends_on.endswith("else transient")


def test_a_group():
    if sys.version_info < (3, 11):
        pytest.skip("groups are built in since Python 3.11")
    explained = explain_type("ExceptionGroup")
    assert explained.rules == ("python.group",)
    assert "all have to be transient" in explained.depends_on


def test_an_unknown_type():
    explained = explain_type("shop_errors.AppError")
    assert explained.rules == ("default",)
    assert explained.verdict is None
    assert explained.depends_on == (
        "the SQLSTATE or HTTP status that it carries, "
        "then the exception that it wraps or was caused by, "
        "then what else it carries, and its name; else terminal"
    )


def test_a_nested_class():
    assert explain_type("shop_errors.AppError.Inner").type_name.endswith("AppError.Inner")


def test_user_rules_come_first():
    classifier = Classifier((Rule(LookupError, "transient", name="mine"),))
    explained = explain_type("KeyError", classifier)
    assert explained == TypeExplanation("KeyError", ("mine",), Verdict.TRANSIENT, "")
    assert explain_type("ValueError", classifier).rules == ("python.error",)


def test_conditional_user_rules_leave_it_open():
    classifier = Classifier(
        (
            Rule(AppError, "transient", name="busy", status=(503, 409)),
            Rule(AppError, "transient", name="soon", when=bool, status=500),
            Rule(AppError, "terminal", name="rest"),
        )
    )
    explained = explain_type("shop_errors.AppError", classifier)
    assert explained.rules == ("busy", "soon", "rest")
    assert explained.verdict is None
    assert explained.depends_on == (
        "HTTP status 409, 503 (busy: transient), "
        "then HTTP status 500 and its predicate (soon: transient); else terminal"
    )


@pytest.mark.parametrize(
    "name",
    [
        "Tiemout",
        "no_such_package.Error",
        "http.client.NoSuchError",
        "os.path",
        "int",
        "",
        ".",
        "a..b",
    ],
)
def test_unknown_names_are_refused_with_the_next_step(name):
    with pytest.raises(CeleryDLQError, match=r"not an exception class .* give its dotted name"):
        explain_type(name)


def test_a_module_that_cannot_be_imported_says_why(tmp_path, monkeypatch):
    (tmp_path / "dlq_broken.py").write_text("raise RuntimeError('no settings')\n")
    (tmp_path / "dlq_needy.py").write_text("import dlq_not_installed\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(CeleryDLQError, match="dlq_broken failed: RuntimeError: no settings"):
        explain_type("dlq_broken.Error")
    with pytest.raises(CeleryDLQError, match=r"dlq_not_installed.*Install the missing package"):
        explain_type("dlq_needy.Error")
