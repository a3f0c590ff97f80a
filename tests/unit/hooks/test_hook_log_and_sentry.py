import logging
import sys
from dataclasses import replace

import pytest
import sentry_sdk
from support.factories import T0, letter

from celery_dlq.errors import SettingsError
from celery_dlq.hooks import EventKind, Log, Sentry


def test_a_line_in_the_log_with_the_event_beside_it(caplog, event):
    with caplog.at_level(logging.INFO, "celery_dlq.events"):
        Log()(event())
        Log()(event(EventKind.RESOLVED, letter("b")))
    warning, information = caplog.records
    assert (warning.levelname, information.levelname) == ("WARNING", "INFO")
    assert warning.getMessage().startswith("dead letter: shop.charge[0d3f]")
    assert warning.dlq_event["type"] == "dead_letter"
    assert information.dlq_event["task_id"] == "b"


def test_the_logger_can_be_chosen(caplog, event):
    Log("shop.alerts")(event())
    [record] = caplog.records
    assert record.name == "shop.alerts"


@pytest.fixture
def reports():
    """What a client of sentry-sdk's own would send."""
    sent = []

    class Kept(sentry_sdk.transport.Transport):
        def capture_envelope(self, envelope):
            sent.extend(item.payload.json for item in envelope.items)

    with sentry_sdk.isolation_scope() as scope:
        scope.set_client(
            sentry_sdk.Client(
                dsn="https://key@sentry.example/1", transport=Kept, default_integrations=False
            )
        )
        yield sent


def test_sentry_groups_as_we_do(reports, event, group):
    Sentry()(event())
    Sentry()(event(EventKind.NEW_GROUP, group))
    assert [report["fingerprint"] for report in reports] == [["9c1e0000deadbeef"]] * 2
    assert reports[0]["exception"]["values"][0]["type"] == "ValueError"
    assert reports[0]["tags"]["celery.task"] == "shop.charge"
    assert reports[0]["contexts"]["dead_letter_queue"]["task_id"] == "0d3f"
    assert reports[0]["timestamp"].startswith(T0.strftime("%Y-%m-%dT%H:%M"))


def test_sentry_gets_the_route_and_the_owner_as_tags(reports, event):
    made = event(value=letter(route="payments"))
    Sentry()(replace(made, route_owner="team-payments"))
    Sentry()(event())
    tags = [report["tags"] for report in reports]
    assert (tags[0]["dlq.route"], tags[0]["dlq.owner"]) == ("payments", "team-payments")
    assert not {"dlq.route", "dlq.owner"} & set(tags[1])


def test_sentry_groups_aborted_operations_together(reports, event, aborted):
    Sentry()(event(EventKind.OPERATION_ABORTED, aborted))
    [report] = reports
    assert report["fingerprint"] == ["celery_dlq", "operation_aborted"]
    assert report["level"] == "error"


def test_without_sentrys_sdk_it_is_said_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "sentry_sdk", None)
    with pytest.raises(SettingsError, match="celery-dlq\\[sentry\\]"):
        Sentry()
