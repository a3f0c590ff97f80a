"""Every reason not to send a letter, and that there is none for one that is fine."""

import functools
import json
import pickle
from datetime import timedelta

import pytest
from celery import Celery, Task
from kombu import Queue, serialization
from pydantic import BaseModel
from support.factories import T0, bomb, envelope, letter, opened

from celery_dlq import DLQTask
from celery_dlq.base.unpack import READ_LIMIT
from celery_dlq.errors import RedriveError
from celery_dlq.model.letter import NO_TASK
from celery_dlq.model.operation import Checking, Orders, Repair
from celery_dlq.redrive.letter import checks as module
from celery_dlq.redrive.letter.checks import Checked, Checks
from celery_dlq.redrive.letter.chords import reopen_chords

NOW = T0 + timedelta(hours=1)


class Order(BaseModel):
    sku: str


class Refund(DLQTask):
    name = "shop.refund"

    def run(self, order_id, *, reason="none"): ...


class WithRequest(DLQTask):
    """Gives each body a request, as PyPI's base class does, and says so to Celery."""

    def __new__(cls, *args, **kwargs):
        task = super().__new__(cls, *args, **kwargs)
        task.__header__ = functools.partial(task.__header__, object())
        return task

    def __call__(self, *args, **kwargs):
        return super().__call__("a request", *args, **kwargs)


class WithTenant(DLQTask):
    """Takes an argument away, and has Celery check nothing."""

    typing = False

    def __call__(self, *args, tenant=None, **kwargs):
        return super().__call__(*args, **kwargs)


@pytest.fixture
def app(tmp_path):
    app = Celery("unit", broker="memory://", backend="cache+memory://", set_as_current=False)
    app.conf.dlq_store_url = f"sqlite:///{tmp_path}/store.sqlite3"

    @app.task(shared=False, name="shop.charge", base=DLQTask)
    def charge(amount, currency="EUR"): ...

    @app.task(shared=False, name="shop.bound", base=DLQTask, bind=True)
    def bound(self, amount, currency="EUR"): ...

    @app.task(shared=False, name="shop.plain", bind=True, autoretry_for=(ValueError,))
    def plain(self, amount, currency="EUR"): ...

    @app.task(shared=False, name="shop.pydantic", base=DLQTask, pydantic=True)
    def typed(order: Order, amount: int = 1): ...

    @app.task(shared=False, name="shop.bound_pydantic", base=DLQTask, bind=True, pydantic=True)
    def bound_typed(self, order: Order, amount: int = 1): ...

    @app.task(shared=False, name="shop.fetch", base=WithRequest, bind=True)
    def fetch(self, request, url, timeout=1.5): ...

    @app.task(shared=False, name="shop.of_tenant", base=WithTenant)
    def of_tenant(amount): ...

    app.register_task(Refund())
    app.finalize()
    return app


@pytest.fixture
def checked(app):
    """What the checks have found about a letter of a task with some arguments."""

    def checked(task="shop.charge", args=(17,), kwargs=None, orders=None, now=NOW, **changes):
        body = json.dumps([list(args), kwargs or {}, {}]).encode()
        sent = envelope(body=body, headers={"id": "0d3f", "task": task})
        made = letter(task=task, **{"envelope": sent, **changes})
        return Checks(app, orders or Orders()).check(opened(app, made), now)

    return checked


@pytest.fixture
def why(checked):
    """The reason, for a letter of a task with some arguments."""
    return lambda *args, **changes: checked(*args, **changes).why_not


@pytest.fixture
def doubt(checked):
    """The doubt about a letter that would be sent."""

    def doubt(*args):
        found = checked(*args)
        assert found.why_not is None
        return found.doubt

    return doubt


def checking(**values):
    return Orders(checking=Checking(**values))


class TestArguments:
    @pytest.mark.parametrize("task", ["shop.charge", "shop.bound", "shop.plain"])
    def test_they_are_bound_to_the_signature_of_today(self, why, task):
        assert why(task, (17,)) is None
        assert why(task, (17, "USD")) is None
        assert why(task, (), {"amount": 17, "currency": "USD"}) is None
        assert "any more: missing amount;" in why(task, ())
        assert "any more: unexpected args[2];" in why(task, (17, "USD", "x"))
        assert "any more: unexpected kwargs.curency;" in why(task, (17,), {"curency": "USD"})

    def test_the_whole_difference_is_named(self, why):
        renamed = why("shop.charge", (), {"sum": 17, "currency": "USD"})
        assert "do not fit shop.charge any more: missing amount, unexpected kwargs.sum;" in renamed
        many = why("shop.charge", (17, *"abcdefgh"))
        assert "unexpected args[2] args[3] args[4] args[5] args[6] and 2 more;" in many
        assert "unexpected kwargs.amount;" in why("shop.charge", (17,), {"amount": 17})

    def test_a_base_class_that_adds_an_argument_says_so_to_celery(self, doubt, why):
        assert doubt("shop.fetch", ("https://shop.example",)) == ""
        assert doubt("shop.fetch", (), {"url": "https://shop.example", "timeout": 2}) == ""
        assert "any more: missing url;" in why("shop.fetch", ())
        assert "any more: unexpected args[2];" in why("shop.fetch", ("a", "b", "c"))

    def test_where_celery_checks_nothing_a_difference_is_a_doubt(self, doubt):
        assert doubt("shop.of_tenant", (17,)) == ""
        assert doubt("shop.of_tenant", (17,), {"tenant": "acme"}) == (
            "the run() of shop.of_tenant takes other arguments (unexpected kwargs.tenant)"
        )

    def test_of_a_class(self, doubt):
        assert doubt("shop.refund", (17,), {"reason": "broken"}) == ""
        assert "shop.refund takes other arguments (unexpected args[1])" in doubt(
            "shop.refund", (17, "broken")
        )

    def test_in_json_of_a_serializer_of_the_projects_own(self, app, why):
        def read(text):
            return json.loads(text)["message"]

        serialization.register(
            "of-the-project",
            lambda message: json.dumps({"message": message}),
            read,
            "application/json",
        )
        try:
            sent = envelope(body=b'{"message": [[17], {}, {}]}', headers={"task": "shop.charge"})
            assert why(envelope=sent) is None
        finally:
            serialization.unregister("of-the-project")
            serialization.register_json()

    @pytest.mark.parametrize("task", ["shop.pydantic", "shop.bound_pydantic"])
    def test_with_models(self, doubt, task):
        assert doubt(task, ({"sku": "a"},)) == ""
        assert "(missing order)" in doubt(task, (), {"amount": 2})

    def test_a_doubt_is_about_one_letter(self, app):
        checks = Checks(app, Orders())
        for args, is_doubted in (([], True), ([17], False)):
            sent = envelope(
                body=json.dumps([args, {}, {}]).encode(), headers={"task": "shop.refund"}
            )
            made = opened(app, letter(task="shop.refund", envelope=sent))
            found = checks.check(made, NOW)
            assert (found.why_not, bool(found.doubt)) == (None, is_doubted)

    def test_a_task_with_an_unknown_signature_takes_anything(self, app, doubt):
        class Builtin(Task):
            name = "shop.builtin"
            run = staticmethod(min)

        app.register_task(Builtin())
        assert doubt("shop.builtin", (1, 2, 3)) == ""


class TestPayload:
    @pytest.mark.parametrize(
        ("body", "words"),
        [
            (b"{", "cannot be decoded: JSONDecodeError"),
            (b"[1, 2]", "is not that of a task"),
            (b'"text"', "is not that of a task"),
            (b"[[], {}, 5]", "is not that of a task"),
            (b"[7, {}, {}]", "arguments are of type int, not a list"),
            (b"[[], [], {}]", "keyword arguments are of type list, not a table"),
            (b"", "cannot be decoded: JSONDecodeError"),
        ],
    )
    def test_it_must_be_a_tasks(self, why, body, words):
        assert words in why(envelope=envelope(body=body))

    def test_its_content_type_must_be_accepted(self, app, why):
        pickled = envelope(
            body=pickle.dumps([[17], {}, {}]),
            content_type="application/x-python-serialize",
            content_encoding="binary",
        )
        assert "ContentDisallowed" in why(envelope=pickled)
        assert why(envelope=pickled).endswith("; accept its content type, or discard it")
        app.conf.accept_content = ["json", "pickle"]
        assert why(envelope=pickled) is None

    @pytest.mark.parametrize(
        ("body", "words"),
        [
            (b"cshop.money\nEuro\n.", "No module named 'shop'"),
            (b"ccollections\nEuro\n.", "Can't get attribute 'Euro' on <module 'collections'"),
        ],
    )
    def test_a_pickled_class_that_is_gone_is_named(self, app, why, body, words):
        app.conf.accept_content = ["json", "pickle"]
        said = why(
            envelope=envelope(
                body=body,
                content_type="application/x-python-serialize",
                content_encoding="binary",
            )
        )
        assert words in said
        assert said.endswith("; bring back what its pickle names, or discard it")

    def test_a_body_that_is_too_large_is_sent_unread(self, app):
        assert Checks(app, Orders()).check(opened(app, bomb(READ_LIMIT)), NOW) == Checked()

    def test_but_not_where_its_chord_has_to_be_known(self, app):
        in_chord = opened(app, bomb(READ_LIMIT, canvas="chord"))
        found = Checks(app, Orders()).check(in_chord, NOW)
        assert "unpacks to more than 64 MiB, and it is in a chord" in found.why_not

    def test_of_celerys_first_protocol(self, why):
        body = json.dumps({"task": "shop.charge", "id": "0d3f", "args": [17], "kwargs": {}})
        assert why(envelope=envelope(body=body.encode(), headers={})) is None
        more = body.replace("[17]", "[17, 18, 19]").encode()
        assert "unexpected args[2]" in why(envelope=envelope(body=more, headers={}))

    def test_without_a_task_the_body_may_be_anything(self, why):
        assert why(NO_TASK, envelope=envelope(body=b"\xff\x00")) is None


class TestLettersHeldBackByOrders:
    def test_letters_that_come_back_and_back(self, why):
        assert why(redrive_count=2) is None
        assert "redriven 3 times and came back" in why(redrive_count=3)
        assert why(redrive_count=9, orders=checking(max_redrives=None)) is None

    def test_old_ones(self, why):
        orders = checking(max_age_s=3600.0)
        assert why(orders=orders, now=T0 + timedelta(seconds=3600)) is None
        assert "failed at 2026-11-21 12:00:00" in why(
            orders=orders, now=T0 + timedelta(seconds=3601)
        )

    def test_letters_of_the_current_release(self, why):
        assert why(orders=checking(unless_release="1.4.3")) is None
        assert "failed in release 1.4.2;" in why(orders=checking(unless_release="1.4.2"))


class TestQueues:
    def test_an_unknown_queue_is_a_reason_only_if_letters_do_not_come_from_it(self, why):
        assert why(envelope=envelope(queue="away")) is None
        assert "queue away does not exist" in why(
            envelope=envelope(queue="away"), orders=Orders(repair=Repair(to_queue="away"))
        )

    def test_a_queue_that_the_app_declares_need_not_exist_yet(self, app, why):
        app.conf.task_queues = [Queue("celery"), Queue("repairs")]
        there = Orders(repair=Repair(to_queue="repairs"))
        assert why(envelope=envelope(queue="repairs"), orders=there) is None

    def test_the_broker_is_asked_once_about_each(self, app, monkeypatch):
        asked = []
        monkeypatch.setattr(
            "celery_dlq.redrive.broker.queues._ask", lambda _connection, queue: asked.append(queue)
        )
        checks = Checks(app, Orders(repair=Repair(to_queue="away")))
        body = envelope(body=b"[[17], {}, {}]", queue="away")
        letters = [opened(app, letter(name, envelope=body)) for name in "abc"]
        reasons = {checks.check(made, NOW).why_not for made in letters}
        assert len(reasons) == 1
        assert asked == ["away"]

    def test_a_broker_that_does_not_answer_is_met_when_sending(self, app, why):
        app.conf.broker_url = app.conf.broker_write_url = "redis://127.0.0.1:1"
        assert why(
            envelope=envelope(body=b"[[17], {}, {}]", queue="away"),
            orders=Orders(repair=Repair(to_queue="away")),
        ) is None  # fmt: skip

    @pytest.mark.parametrize(
        ("queues", "queue", "is_allowed"),
        [
            (None, "mail", True),
            (["shop.*", "mail"], "mail", True),
            (["shop.*"], "shop.big", True),
            (["shop.*"], "mail", False),
            (["MAIL"], "mail", False),
            ([], "mail", False),
            (["mail"], "", False),
        ],
    )
    def test_the_settings_name_those_to_which_the_app_may_send(
        self, app, queues, queue, is_allowed
    ):
        sent = envelope(body=b"[[17], {}, {}]", queue=queue, exchange="shop")
        checks = Checks(app, Orders(), queues)
        for _ in range(2):  # the second one is quicker
            found = checks.check(opened(app, letter(envelope=sent)), NOW).why_not
            assert (found is None) == is_allowed
            if found:
                named = f"queue {queue}" if queue else "its exchange"
                assert f"dlq_redrive_queues of this app does not allow {named};" in found

    def test_a_letter_without_queue_and_exchange(self, why):
        assert "queue it came from is unknown" in why(envelope=envelope(queue="", exchange=""))
        through = envelope(body=b"[[17], {}, {}]", queue="", exchange="shop")
        assert why(envelope=through) is None


def test_an_unregistered_task(why):
    assert "task shop.gone is not registered" in why("shop.gone")


def test_the_task_of_the_message_counts_and_not_another_that_was_run_instead(why):
    body = b"[[17], {}, {}]"
    gone = envelope(body=body, headers={"id": "0d3f", "task": "shop.gone"})
    assert "task shop.gone is not registered" in why("shop.charge", envelope=gone)
    other = envelope(body=body, headers={"id": "0d3f", "task": "shop.pydantic"})
    assert why("shop.refund", envelope=other) is None
    assert why("shop.refund", ("a", "b"), envelope=other) is None


def test_an_unreachable_result_backend(why, monkeypatch):
    def refuse(*_):
        raise ConnectionError("redis is gone")

    monkeypatch.setattr(module, "why_not_whole", refuse)
    body = {"task": "shop.notify", "options": {"task_id": "b"}}
    sent = envelope(
        body=json.dumps([[17], {}, {"chord": body}]).encode(),
        headers={"id": "0d3f", "task": "shop.charge", "group": "g"},
    )
    with pytest.raises(RedriveError, match="result backend does not answer"):
        why(envelope=sent)


def test_an_unexpected_error_concerns_its_letter_only(why, monkeypatch):
    def refuse(*_):
        raise ValueError("a bug")

    monkeypatch.setattr(Checks, "_fit", refuse)
    assert why() == "it cannot be checked (ValueError: a bug); repair it, or discard it"


@pytest.mark.parametrize("options", [[], 7, "text", None])
def test_a_chord_of_another_shape_is_not_the_result_backend_that_fails(app, why, options):
    body = {"task": "shop.charge", "options": options, "kwargs": options}
    inner = {**body, "subtask_type": "chord"}
    embed = {"chord": inner, "chain": [inner, {**inner, "subtask_type": "chain"}]}
    for headers in ({"group": "g"}, {}):
        sent = envelope(
            body=json.dumps([[17], {}, embed]).encode(),
            headers={"id": "0d3f", "task": "shop.charge", **headers},
        )
        made = letter(canvas="chord", envelope=sent)
        found = Checks(app, Orders()).check(opened(app, made), NOW)
        assert found.why_not is None or "chord" in found.why_not
        reopen_chords(app, found.members)
