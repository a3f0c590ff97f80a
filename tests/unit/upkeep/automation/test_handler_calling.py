from dataclasses import FrozenInstanceError

import pytest
from billiard.exceptions import SoftTimeLimitExceeded
from support.factories import T0, envelope, letter

from celery_dlq import Discard, Escalate, Filter, Leave, Redrive, Ticket
from celery_dlq.api.queue import DeadLetterQueue
from celery_dlq.base.redact import Redactor
from celery_dlq.errors import HandlerError
from celery_dlq.model.handling import GroupTicket, TicketKind
from celery_dlq.redrive.letter import contents, edit, payload
from celery_dlq.upkeep.automation.calling import Caller
from celery_dlq.upkeep.automation.definition import Handler

TICKET = GroupTicket(
    fingerprint="f", kind=TicketKind.TICKET, url="https://t/1", handler="ticketing", at=T0
)


@pytest.fixture
def call(shop_app):
    caller = Caller(shop_app, Redactor(()), lambda: T0)

    def call(function, stored=None, tickets=(), **options):
        handler = Handler(
            name="repair", function=function, where=Filter(task="charge"), all=False, timeout=30.0,
            version="7", per_hour=10, once_per_group=options.get("once_per_group", False),
        )  # fmt: skip
        return caller.call(handler, stored or letter(), tickets)

    return call


def test_a_handler_sees_the_real_arguments_and_not_the_display_copies(call):
    seen = []
    stored = letter(
        args=["[redacted]"],
        kwargs={},
        envelope=envelope(body=b'[[17], {"password": "hunter2"}, {}]'),
    )
    call(lambda one: seen.append((one.args, one.kwargs, one.headers["task"])) or Leave(), stored)
    assert seen == [([17], {"password": "hunter2"}, "shop.charge")]


def test_a_handler_sees_why_the_letter_died(call):
    seen = []
    call(lambda one: seen.append(one) or Leave(), tickets=(TICKET,))
    [one] = seen
    assert (one.task_id, one.task, one.queue, one.exception_type, one.message) == (
        "0d3f", "shop.charge", "celery", "ValueError", "bad currency",
    )  # fmt: skip
    assert (one.reason.value, one.redrive_count, len(one.attempts)) == ("terminal", 0, 1)
    assert (one.last_failed_at, one.fingerprint) == (T0, "9c1e0000deadbeef")
    assert "Traceback" in one.traceback
    assert (one.ticket, one.escalation) == (TICKET, None)
    with pytest.raises(FrozenInstanceError):
        one.tickets = ()


def test_a_handler_sees_a_copy_without_secrets_for_other_systems(call):
    seen = []
    secret = "password=hunter2"
    call(lambda one: seen.append(one) or Leave(), letter(message=secret, traceback=secret))
    [one] = seen
    assert (one.shown.message, one.shown.traceback) == ("password=[redacted]",) * 2
    assert one.message == secret
    assert "hunter2" not in repr(one)


def test_changing_what_it_was_given_changes_no_letter(call):
    stored = letter()

    def repair(one):
        one.kwargs["currency"] = "EUR"
        kwargs = one.kwargs
        assert kwargs == {"currency": "EUX"}
        kwargs["currency"] = "EUR"
        return Redrive(kwargs=kwargs)

    answer = call(repair, stored)
    assert answer.detail == {"change": '- kwargs.currency = "EUX"\n+ kwargs.currency = "EUR"'}
    assert answer.edit.before == stored.envelope
    assert (answer.edit.who, answer.edit.why, answer.edit.at) == (
        "auto:repair", "version 7", T0,
    )  # fmt: skip


def test_a_redrive_that_changes_nothing_is_one_without_an_edit(call):
    for verdict in (Redrive(), Redrive(args=[17])):
        answer = call(lambda one, verdict=verdict: verdict)
        assert (answer.verdict, answer.edit, answer.detail) == (verdict, None, {})


def test_secrets_are_hidden_in_what_is_stored(call):
    stored = letter(envelope=envelope(body=b'[[], {"password": "hunter2"}, {}]'))
    answer = call(lambda one: Redrive(kwargs={"password": "sesame"}), stored)
    assert "sesame" not in str(answer.detail)
    assert "hunter2" not in str(answer.detail)
    why = "password=hunter2 is wrong"
    for verdict in (Discard(why), Escalate("ops", why)):
        answer = call(lambda one, verdict=verdict: verdict, once_per_group=True)
        assert "hunter2" not in f"{answer.verdict}{answer.detail}"

    def leak(one):
        raise RuntimeError(why)

    assert "hunter2" not in call(leak).error


@pytest.mark.parametrize("error", [KeyError("a"), SystemExit(3), RecursionError("deep")])
def test_what_it_raises_is_its_error(call, error):
    def fail(one):
        raise error

    answer = call(fail)
    assert answer.verdict is None
    assert answer.error.startswith(f"it raised {type(error).__name__}")
    assert answer.may_pass


def test_a_call_that_takes_too_long_may_pass_the_next_time(call):
    def wait(one):
        raise SoftTimeLimitExceeded

    answer = call(wait)
    assert (answer.error, answer.may_pass) == (
        "it did not end within its timeout of 30 seconds", True,
    )  # fmt: skip


def _late(*_, **__):
    raise SoftTimeLimitExceeded


class Late:
    """An argument whose comparison is cut off."""

    __eq__ = __reduce__ = _late
    __hash__ = None


def _raise_another(one):
    try:
        _late()
    except SoftTimeLimitExceeded:
        raise HandlerError("the bank did not answer") from None


@pytest.mark.parametrize(
    "handle", [lambda one: Redrive(args=one.args), lambda one: Redrive(args=[18]), _raise_another]
)
@pytest.mark.parametrize("step", ["_decoded", "check_size"])
def test_a_time_limit_that_cuts_off_a_step_is_not_the_error_of_that_step(
    call, monkeypatch, step, handle
):
    monkeypatch.setattr(payload, step, _late)
    assert call(handle).error == "it did not end within its timeout of 30 seconds"
    assert call(handle).may_pass


def test_a_time_limit_that_cuts_off_a_change_is_reported_as_one(call, monkeypatch):
    for module, step in (
        (edit, "describe"),
        (edit, "with_contents"),
        (payload.serialization, "dumps"),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(module, step, _late)
            answer = call(lambda one: Redrive(args=[18]))
        assert answer.error == "it did not end within its timeout of 30 seconds"
        assert answer.may_pass


def test_a_comparison_that_is_cut_off_does_not_say_that_a_value_was_changed():
    with pytest.raises(SoftTimeLimitExceeded):
        contents.is_same(Late(), Late())


@pytest.mark.parametrize("returned", [None, "redrive", Redrive, 1])
def test_what_is_not_a_verdict_is_an_error_that_stays(call, returned):
    answer = call(lambda one: returned)
    assert answer.error == (
        f"it returned {type(returned).__name__}; return one of Redrive, Discard, Ticket, "
        "Escalate, Leave"
    )
    assert not answer.may_pass


@pytest.mark.parametrize("verdict", [Ticket("https://t/1"), Escalate("ops", "why")])
def test_only_a_handler_for_groups_gives_tickets(call, verdict):
    answer = call(lambda one: verdict)
    assert answer.error == (
        f"it returned {type(verdict).__name__}, which only a handler with once_per_group=True "
        "may return"
    )
    assert call(lambda one: verdict, once_per_group=True).verdict == verdict


def test_a_change_that_cannot_be_made_is_an_error_that_stays(call):
    answer = call(lambda one: Redrive(headers={"id": "another"}))
    assert "its Redrive cannot be done: it changes the task id" in answer.error
    assert not answer.may_pass


def test_a_message_that_cannot_be_read_is_an_error_that_stays(call):
    stored = letter(envelope=envelope(body=b"\x80", content_type="application/x-python-serialize"))
    answer = call(lambda one: Redrive(args=one.args), stored)
    assert "its body cannot be decoded" in answer.error
    assert not answer.may_pass


def test_a_verdict_that_cannot_be_made_is_an_error_that_stays(call):
    def fail(one):
        raise HandlerError("Discard(reason=''): give a text.")

    answer = call(fail)
    assert (answer.error, answer.may_pass) == ("Discard(reason=''): give a text.", False)


class TestRepairs:
    """A verdict may name a repair of the app, which then changes the message."""

    @pytest.fixture(autouse=True)
    def euros(self, shop_app):
        @DeadLetterQueue.of(shop_app).repair("in euros")
        def in_euros(args, kwargs, headers):
            if kwargs["currency"] == "gone":
                return None
            return args, {**kwargs, "currency": kwargs["currency"].lower()}, headers

    def test_the_repair_changes_the_message(self, call):
        answer = call(lambda one: Redrive(repair="in euros"))
        assert answer.detail["change"].endswith('+ kwargs.currency = "eux"')
        assert answer.edit.why == "version 7, repair in euros"

    def test_it_comes_after_the_changes_of_the_verdict(self, call):
        answer = call(lambda one: Redrive(kwargs={"currency": "USD"}, repair="in euros"))
        assert answer.detail["change"].endswith('+ kwargs.currency = "usd"')

    @pytest.mark.parametrize(
        ("verdict", "error"),
        [
            (
                {"repair": "in eros"},
                "'in eros' is not a repair of this app; did you mean 'in euros'?",
            ),
            ({"repair": "in euros", "kwargs": {}}, "repair 'in euros' raised KeyError: 'currency'"),
            (
                {"repair": "in euros", "kwargs": {"currency": "gone"}},
                "repair 'in euros' left it out",
            ),
        ],
    )
    def test_one_that_cannot_be_made_is_an_error(self, call, verdict, error):
        answer = call(lambda one: Redrive(**verdict))
        assert answer.verdict is None
        assert answer.error.startswith(f"its Redrive cannot be done: {error}")

    @pytest.mark.parametrize("name", ["", 7])
    def test_its_name_is_a_text(self, name):
        with pytest.raises(HandlerError, match="give a text"):
            Redrive(repair=name)

    def test_a_handler_sees_the_upgraded_message(self, shop_app, call):
        @DeadLetterQueue.of(shop_app).upgrade("shop.charge", to="2026.12")
        def renamed(args, kwargs, headers):
            return args, {"money": kwargs["currency"]}, headers

        seen = []
        old = letter(message_release="2026.11")
        call(lambda one: seen.append(one.kwargs) or Leave(), old)
        assert seen == [{"money": "EUX"}]


def test_a_handler_gets_no_letter_that_cannot_be_decrypted(call):
    answer = call(lambda _letter: pytest.fail("called"), letter(unreadable="The key is not here."))
    assert (answer.verdict, answer.error, answer.may_pass) == (None, "The key is not here.", True)
