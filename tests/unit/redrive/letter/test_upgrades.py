"""Upgrades: which ones a message needs, and what they make of it."""

import json
from datetime import timedelta

import pytest
from celery import Celery
from support.factories import T0, envelope, letter

from celery_dlq.base.redact import Redactor
from celery_dlq.errors import RepairError
from celery_dlq.model.operation import Orders, Repair
from celery_dlq.redrive.letter.checks import Checks
from celery_dlq.redrive.letter.edit import contents_to_edit, make_edit
from celery_dlq.redrive.letter.functions import Upgrade, functions_of
from celery_dlq.redrive.letter.repair import Repairs

NOW = T0 + timedelta(hours=1)


@pytest.fixture
def app():
    app = Celery("unit", broker="memory://", set_as_current=False)

    @app.task(name="shop.charge", shared=False)
    def charge(order_id, cents, currency="EUR"):
        raise NotImplementedError

    app.finalize()
    add(app, "2026.12", in_cents)
    add(app, "2026.11", named)
    return app


def add(app, to, function):
    functions_of(app).add_upgrade(Upgrade(task="shop.charge", to=to, function=function))


def named(args, kwargs, headers):
    """In 2026.11, the order became a keyword argument."""
    return args[1:], {"order_id": args[0], **kwargs}, headers


def in_cents(args, kwargs, headers):
    """In 2026.12, amounts became cents."""
    kwargs["cents"] = kwargs.pop("amount") * 100
    return args, kwargs, headers


def message(args=(), kwargs=None, release="", **changes):
    body = json.dumps([list(args), kwargs or {}, {}]).encode()
    sent = envelope(body=body, headers={"id": "0d3f", "task": "shop.charge"})
    return letter(envelope=sent, message_release=release, **changes)


def repaired(app, made, **repair):
    return Repairs(app, Repair(**repair), Redactor()).repaired(made, NOW)


def body_of(found):
    assert found.why_not is None, found.why_not
    return json.loads(found.letter.envelope.body)[:2]


OLDEST = ([17], {"amount": 5})
OLDER = ([], {"order_id": 17, "amount": 5})
NEW = [[], {"order_id": 17, "cents": 500}]


@pytest.mark.parametrize(
    ("release", "given"), [("2026.10.9", OLDEST), ("2026.11", OLDER), ("2026.11.3", OLDER)]
)
def test_those_of_later_releases_are_applied_in_order(app, release, given):
    found = repaired(app, message(*given, release=release))
    assert body_of(found) == NEW
    assert "+ kwargs.cents = 500" in found.change


@pytest.mark.parametrize("release", ["2026.12", "2027.1", "3f2a9c1", "", "v2026.1"])
def test_a_message_that_fits_is_not_changed_by_other_releases(app, release):
    made = message(*NEW, release=release)
    found = repaired(app, made)
    assert (found.letter, found.change, found.why_not) == (made, "", None)


@pytest.mark.parametrize("release", ["2026.12", "3f2a9c1", ""])
def test_one_that_does_not_fit_is_upgraded_from_the_start(app, release):
    """A producer of an earlier release may have sent it."""
    assert body_of(repaired(app, message(*OLDEST, release=release))) == NEW


def test_the_release_counts_even_if_the_message_fits(app):
    """Here the meaning of an argument has changed, and its name has not."""

    def tens(args, kwargs, headers):
        return args, {**kwargs, "cents": kwargs["cents"] * 10}, headers

    add(app, "2027.1", tens)
    assert body_of(repaired(app, message(*NEW, release="2026.12")))[1]["cents"] == 5_000
    assert body_of(repaired(app, message(*NEW, release="2027.1")))[1]["cents"] == 500


def test_assignments_and_the_repair_come_after_them(app):
    functions_of(app).repairs["double"] = lambda args, kwargs, headers: (
        args, {**kwargs, "cents": kwargs["cents"] * 2}, headers,
    )  # fmt: skip
    made = message(*OLDER, release="2026.11")
    found = repaired(app, made, function="double", assignments=("kwargs.cents=7",), to_queue="slow")
    assert body_of(found)[1]["cents"] == 14
    assert (found.letter.queue, made.queue) == ("slow", "celery")


@pytest.mark.parametrize(
    ("function", "why"),
    [
        (lambda *_: 1 / 0, "raised ZeroDivisionError: division by zero"),
        (lambda *_: "rubbish", "must return args, kwargs and headers, or None to leave it out"),
        (lambda *_: None, "left it out"),
    ],
)
def test_one_that_fails_refuses_the_letter(app, function, why):
    add(app, "2027.1", function)
    found = repaired(app, message(*NEW, release="2026.12"))
    assert found.why_not == f"the upgrade of shop.charge to 2027.1 {why}"


def test_a_message_that_still_fits_no_signature_is_refused_with_the_difference(app):
    add(app, "2027.1", lambda args, kwargs, headers: (args, {"order": 17, "cents": 1}, headers))
    found = repaired(app, message(*NEW, release="2026.12"))
    why = Checks(app, Orders()).check(found.opened, NOW).why_not
    assert "any more: missing order_id, unexpected kwargs.order; repair" in why


def test_other_tasks_and_unreadable_messages(app):
    functions_of(app).upgrades["shop.gone"] = functions_of(app).upgrades["shop.charge"]
    gone = letter(task="shop.gone", envelope=envelope(headers={"id": "x", "task": "shop.gone"}))
    assert repaired(app, gone).letter is gone
    other = letter(task="shop.mail", envelope=envelope(headers={"id": "x", "task": "shop.mail"}))
    assert repaired(app, other).letter is other
    torn = message(release="2026.10")
    torn = torn.with_(envelope=envelope(body=b"{", headers=torn.envelope.headers))
    assert "cannot be decoded" in repaired(app, torn).why_not


class TestEdits:
    def test_begin_with_the_upgraded_message(self, app):
        made = message(*OLDEST, release="2026.10")
        assert contents_to_edit(app, made)["kwargs"] == NEW[1]
        edit = make_edit(
            app, made, {"kwargs": {**NEW[1], "currency": "USD"}}, Redactor(), who="a", at=T0
        )
        assert json.loads(edit.after.body)[:2] == [[], {**NEW[1], "currency": "USD"}]
        assert (edit.before, "- args[0] = 17" in edit.diff) == (made.envelope, True)

    def test_are_of_the_release_of_the_code(self, app):
        app.conf.dlq_release = "2026.12"
        made = message(*OLDER, release="2026.11")
        assert make_edit(app, made, {}, Redactor(), who="a", at=T0).release == "2026.12"

    def test_of_a_message_that_cannot_be_upgraded_begin_with_the_stored_one(self, app):
        made = message((17,), {}, release="2026.11")
        assert contents_to_edit(app, made)["args"] == [17]

    def test_may_name_a_repair(self, app):
        functions_of(app).repairs["dollars"] = lambda args, kwargs, headers: (
            args, {**kwargs, "currency": "USD"}, headers,
        )  # fmt: skip
        edit = make_edit(app, message(*NEW), {}, Redactor(), repair="dollars", who="a", at=T0)
        assert edit.diff == '+ kwargs.currency = "USD"'
        with pytest.raises(RepairError, match="not a repair of this app; did you mean 'dollars'"):
            make_edit(app, message(*NEW), {}, Redactor(), repair="dollar", who="a", at=T0)
