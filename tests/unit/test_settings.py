from dataclasses import fields
from datetime import timedelta

import pytest
from celery import Celery

from celery_dlq import Approval, AutoRedrive, Filter, Retention, Route
from celery_dlq.errors import SettingsError
from celery_dlq.hooks import EventKind
from celery_dlq.settings import STORE_URL_VARIABLE, Settings, read_settings

ONE = AutoRedrive("one", where=Filter(task="shop.charge"))
ROUTE = Route("payments", task="shop.charge")

#: The settings whose values are not shown.
SECRET = {"store_url", "search_redacted_key", "encryption_keys"}

#: For each setting, values that are allowed and values that are not.
VALUES = {
    "store_url": (["sqlite:///x.db"], ["", 7, None]),
    "store_timeout": ([0.1, 5, 300], [0, -1, "5", True, float("nan")]),
    "namespace": (
        ["", "shop", "a.B-c_9", "x" * 64, ["shop", "mail"], ("shop",), ["", "shop"], "*"],
        ["a b", "x" * 65, "shop\n", [], ["*"], [["a"]], [1], None, 7, b"shop", "é"],
    ),
    "redrive_queues": ([None, [], ["shop.*", "mail"]], ["shop", [""], [1]]),
    "spool_dir": (["/var/spool/x"], ["", " ", 1]),
    "spool_max_size": ([1_048_576, 2**50], [0, 1_048_575, "1 GB"]),
    "max_attempts": ([1, 10_000], [0, -3, 2.0, True]),
    "unpacked_max_size": ([1_048_576, 2**50], [0, 1_048_575, "1 GB"]),
    "max_deliveries": ([1, 3, 1_000], [0, 1_001, 2.5, "3", True]),
    "retry_base": ([0, 0.5, 30], [-0.1, "1"]),
    "retry_cap": ([2, 86_400], [-1, 90_000, None]),
    "park_after": ([1, 86_400.0], [0, "minute"]),
    "retry_window": ([1, 86_400.0], [0, "day"]),
    "retry_after_max": ([0, 300], [-1, None]),
    "retry_budget": ([None, 0, 0.2, 1], [-0.1, 1.5, 20, "20%", True, float("nan")]),
    "retry_budget_floor": ([0, 3], [-1, 0.5, None]),
    "breaker_failures": ([0, 20], [-1, 2.5, None]),
    "unsent": (["raise", "store", "commit"], ["", "spool", None]),
    "unsent_after": ([0.1, 2, 60], [0, 61, "2"]),
    "breaker_streak": ([0, 50], [-1, 2.5, None]),
    "breaker_window": ([0.1, 60.0], [0, "1m"]),
    "breaker_recovery": ([0.1, 3_600], [0, 3_601, None]),
    "fingerprint": ([None, print, "shop.grouping.by_vendor"], ["", 1, ["shop.grouping.by_vendor"]]),
    "transient": ([[], ["a.B"], (KeyError,)], ["a.B", [1], [int], [""]]),
    "terminal": ([[], ["a.B"], (KeyError,)], [KeyError, [None]]),
    "rules": ([[]], ["x", [object()]]),
    "judge_by_name": ([True, False], [1, "yes", None]),
    "handler_queue": (["repairs"], ["", None, 1]),
    "redact": ([[], ["tax_id"]], ["tax_id", [1], [""]]),
    "recorder": ([True, False], [1, "yes", None]),
    "recorder_dir": (["", "/var/lib/recorder"], [None, 1]),
    "search_redacted_key": (["", "a key"], [None, 17, b"a key"]),
    "search_values": ([0, 24, 1_000], [-1, 1_001, "all", 2.5, None]),
    "restore_unacked": ([True, False], [1, "yes", None]),
    "log_lines": ([0, 50, 1_000], [-1, 1_001, 5.0, True, "50", None]),
    "stall_after": ([0, 2, 300.0, 86_400], [-1, 90_000, "5m", None]),
    "redrive_trace": (["link", "continue"], ["", "LINK", "new", None, True, ["link"]]),
    "trace_url": (
        ["", "https://jaeger.example/trace/{trace_id}", "http://[::1]/{trace_id}?x={y}"],
        ["https://jaeger.example/trace/", "javascript:{trace_id}", "jaeger/{trace_id}", None, 7],
    ),
    "release": (["", "1.4.2"], [None, 1]),
    "events": ([True, False], [1, "no", None]),
    "worker_metrics": ([True, False], [1, "yes", None]),
    "routes": ([[], [ROUTE]], ["x", [object()], [ROUTE, ROUTE], None, ROUTE]),
    "auto_redrive": ([[], [ONE]], ["x", [object()], [ONE, ONE], None]),
    "auto_redrive_budget": ([1, 10_000], [0, 1.5, "10", None]),
    "outcome_timeout": ([1, 86_400.0], [0, "1d"]),
    "approval": ([None, Approval()], [True, {"acts": ["redrive"]}, Retention()]),
    "encryption_keys": ([None, {"2026": "key"}, "shop.keys", dict], ["", [], 7, ["key"]]),
    "subject": ([None, "shop.person", print], ["", 7, ["shop.person"]]),
    "cli_acts": (["do", "propose"], ["", "ask", None, True]),
    "retention": ([None, Retention()], [86_400, [Retention()], timedelta(days=30), True]),
    "archive_url": (
        [None, "file:///var/letters", "s3://letters", "s3://letters/shop", "gs://letters", "abfs://c@a"],
        [
            "", "/var/letters", "letters", "file://", "file:///", "file://letters", "s3://", "S3://letters",
            "memory://letters", "https://example.org/letters", "simplecache::s3://letters", 7,
        ],
    ),
    "roles": (
        [
            None, {}, {"read": ["*"]}, {"act": ["@example.com", "ann", "a@b.c"], "erase": ()},
            {"triage": ["ann lee"], "approve": ["DOMAIN\\\\ann"]},
        ],
        [
            "ann", ["ann"], {"read": "ann"}, {"admin": ["ann"]}, {"read": [""]}, {"read": ["@"]},
            {"act": ["group:payments"]}, {"act": ["Group:x"]}, {"act": ["*@example.com"]}, {"act": ["ann "]},
            {"act": [" ann"]}, {"act": ["@a@b"]}, {"act": ["@a b"]}, {"act": [None]}, {1: ["ann"]},
        ],
    ),
    "hooks": (
        [None, {}, *({kind.value: ["shop.page", print]} for kind in EventKind), {"resolved": []}],
        ["shop.page", [print], {"resolved": print}, {"resolved": [1]}, {"new_groups": []}],
    ),
}  # fmt: skip


#: The settings without which others are refused.
NEEDED = {"subject": {"encryption_keys": {"2026": "key"}}}


def test_every_setting_is_tested_here():
    assert set(VALUES) == {item.name for item in fields(Settings)}


def test_allowed_values_are_taken():
    for name, (good, _bad) in VALUES.items():
        for value in good:
            given = {**NEEDED.get(name, {}), name: value}
            assert getattr(Settings.from_values(given), name) == value, (name, value)


def test_a_subject_needs_keys():
    with pytest.raises(SettingsError, match="dlq_subject needs dlq_encryption_keys"):
        Settings.from_values({"subject": "shop.person"})


def test_other_values_are_refused_with_key_value_and_what_is_allowed():
    for name, (_good, bad) in VALUES.items():
        for value in bad:
            text = refused(name, value)
            assert f"dlq_{name}" in text, (name, value)
            assert "`celery dlq help settings`" in text, (name, value)
            assert "\n" not in text, (name, value)
            assert (repr(value) in text) is (name not in SECRET), (name, value)


def refused(name, value):
    """The error of a value that is not allowed."""
    try:
        Settings.from_values({name: value})
    except SettingsError as error:
        return str(error)
    raise AssertionError(f"dlq_{name} = {value!r} was accepted")


def test_the_defaults_are_allowed():
    assert Settings.from_values({}) == Settings()


def test_the_base_may_not_pass_the_cap():
    with pytest.raises(SettingsError, match=r"dlq_retry_base .* above dlq_retry_cap"):
        Settings.from_values({"retry_base": 10, "retry_cap": 5})


def test_the_environment_overrides_the_url():
    values, variables = {"store_url": "postgresql://a"}, {STORE_URL_VARIABLE: "postgresql://b"}
    assert Settings.from_values(values, variables).store_url == "postgresql://b"


@pytest.fixture
def app(monkeypatch):
    monkeypatch.delenv(STORE_URL_VARIABLE, raising=False)
    return Celery("settings", set_as_current=False)


def test_settings_come_from_the_apps_configuration(app):
    app.conf.update(dlq_max_attempts=7, dlq_release="2.0")
    settings = Settings.from_app(app)
    assert (settings.max_attempts, settings.release, settings.retry_cap) == (7, "2.0", 300.0)


def test_settings_come_from_djangos_namespace(app):
    class DjangoSettings:
        CELERY_DLQ_MAX_ATTEMPTS = 9
        DEBUG = True

    app.config_from_object(DjangoSettings(), namespace="CELERY")
    assert Settings.from_app(app).max_attempts == 9


def test_an_unknown_key_is_named_as_the_user_wrote_it(app):
    class DjangoSettings:
        CELERY_DLQ_MAX_ATTEMPS = 9

    app.config_from_object(DjangoSettings(), namespace="CELERY")
    with pytest.raises(
        SettingsError, match="'CELERY_DLQ_MAX_ATTEMPS': did you mean 'CELERY_DLQ_MAX_ATTEMPTS'"
    ):
        Settings.from_app(app)


def test_an_unknown_key_names_its_nearest(app):
    app.conf.dlq_max_attemps = 7
    with pytest.raises(SettingsError, match="'dlq_max_attemps': did you mean 'dlq_max_attempts'"):
        Settings.from_app(app)


def test_a_key_that_is_like_no_other_points_to_the_docs(app):
    app.conf.dlq_zzz = 7
    with pytest.raises(SettingsError, match="not a setting of celery_dlq"):
        Settings.from_app(app)


def test_all_that_is_wrong_is_said_at_once_and_has_its_default(app):
    app.conf.update(dlq_max_attemps=7, dlq_max_attempts=0, dlq_retry_base=500, dlq_release="2.0")
    read = read_settings(app)
    assert read.settings == Settings(release="2.0")
    assert len(read.problems) == 3
    with pytest.raises(SettingsError) as caught:
        Settings.from_app(app)
    assert str(caught.value) == " ".join(read.problems)


@pytest.mark.parametrize(
    "name", ["CELERY_DLQ_STORE_ULR", "CELERY_DLQ_STOREURL", "CELERY_DLQ_STORE_URI"]
)
def test_a_misspelt_variable_is_said(name):
    with pytest.raises(
        SettingsError, match=f"variable {name} is not read: did you mean CELERY_DLQ_STORE_URL"
    ):
        Settings.from_values({}, {name: "postgresql://bob:hunter2@host/db"})


@pytest.mark.parametrize(
    "environ",
    [
        {
            "CELERY_DLQ_SPOOL_DIR": "/var/spool/x",
            "CELERY_DLQ_STORE_TIMEOUT": "5",
            "CELERY_DLQ": "x",
        },
        {"CELERY_DLQ_STORE_URI": "sqlite:///a", STORE_URL_VARIABLE: "sqlite:///b"},
        {STORE_URL_VARIABLE: ""},
    ],
)
def test_other_variables_are_the_users(environ):
    assert Settings.from_values({}, environ).spool_dir == Settings().spool_dir


def test_the_store_urls_value_is_never_shown():
    with pytest.raises(SettingsError) as caught:
        Settings.from_values({"store_url": ["postgresql://bob:hunter2@host/db"]})
    assert "hunter2" not in str(caught.value)


def test_a_worker_has_one_namespace():
    assert Settings().own_namespace == ""
    assert Settings(namespace="shop").own_namespace == "shop"
    assert Settings(namespace=["shop"]).own_namespace == "shop"
    for several in ("*", ["shop", "mail"]):
        with pytest.raises(SettingsError, match="or in dlq_namespace"):
            Settings(namespace=several).own_namespace  # noqa: B018
