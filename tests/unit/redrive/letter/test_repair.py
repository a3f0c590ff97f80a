"""Repairs of messages: changes, parts that stay, and diffs."""

import json
import pickle
from datetime import datetime, timedelta, timezone

import msgpack
import pytest
import yaml
from celery import Celery
from support.factories import T0, envelope, letter

from celery_dlq.base.redact import Redactor
from celery_dlq.errors import RepairError
from celery_dlq.model.operation import Repair
from celery_dlq.redrive.broker.message import headers_to_send
from celery_dlq.redrive.letter.contents import LINE, kind_of
from celery_dlq.redrive.letter.functions import functions_of
from celery_dlq.redrive.letter.repair import Repairs, described

NOW = T0 + timedelta(hours=1)
EMBED = {"callbacks": [{"task": "shop.thank"}], "errbacks": None, "chain": [], "chord": None}


@pytest.fixture
def app():
    app = Celery("unit", set_as_current=False)
    app.conf.accept_content = ["json", "yaml", "msgpack"]
    return app


@pytest.fixture
def repair(app):
    """The repaired letter of a message with some arguments."""

    def repair(args=(17,), kwargs=None, sent=None, **orders):
        made = sent or message(args, {"currency": "EUX"} if kwargs is None else kwargs)
        return Repairs(app, Repair(**orders), Redactor()).repaired(made, NOW)

    return repair


@pytest.fixture
def named(app):
    """Registers a repair; returns its name."""

    def named(function):
        functions_of(app).repairs["in euros"] = function
        return "in euros"

    return named


def message(args=(17,), kwargs=None, **headers):
    body = json.dumps([list(args), kwargs or {}, EMBED]).encode()
    default = {"id": "0d3f", "task": "shop.charge", "retries": 0}
    return letter(envelope=envelope(body=body, headers={**default, **headers}))


def body_of(repaired):
    assert repaired.why_not is None
    return json.loads(repaired.letter.envelope.body)


def test_nothing_to_change_changes_nothing(repair):
    made = message()
    repaired = repair(sent=made)
    assert repaired.letter is made
    assert (repaired.change, repaired.why_not) == ("", None)


class TestAssignments:
    def test_of_a_keyword_argument(self, repair):
        repaired = repair(assignments=("kwargs.currency=USD",))
        assert body_of(repaired) == [[17], {"currency": "USD"}, EMBED]
        assert repaired.change == '- kwargs.currency = "EUX"\n+ kwargs.currency = "USD"'

    def test_the_body_is_written_as_it_was(self, repair):
        before, after = message().envelope, repair(assignments=("args[0]=5",)).letter.envelope
        assert (after.content_type, after.content_encoding) == (
            before.content_type, before.content_encoding,
        )  # fmt: skip
        assert {**vars(after), "body": 0} == {**vars(before), "body": 0}

    @pytest.mark.parametrize(
        ("text", "value"),
        [
            ("5", 5), ('"5"', "5"), ("five", "five"), ("01234", "01234"), ("null", None),
            ("true", True), ('{"a": [1]}', {"a": [1]}), ("", ""), ("a=b", "a=b"), ("NaN", "NaN"),
            ("Infinity", "Infinity"), ("[1", "[1"),
        ],
    )  # fmt: skip
    def test_a_value_is_json_or_else_text(self, repair, text, value):
        assert body_of(repair(assignments=(f"kwargs.x={text}",)))[1]["x"] == value

    @pytest.mark.parametrize("place", ["args[1]", "args.1"])
    def test_of_a_positional_argument(self, repair, place):
        repaired = repair((1, 2), {}, assignments=(f"{place}=7",))
        assert body_of(repaired)[0] == [1, 7]
        assert repaired.change == "- args[1] = 2\n+ args[1] = 7"

    def test_deep_inside(self, repair):
        lines = [{"sku": "a"}, {"sku": "b"}, {"sku": "c", "a.b": {"x": 1}}]
        repaired = repair(
            (), {"order": {"lines": lines}},
            assignments=("kwargs.order.lines[2].sku=A-1", 'kwargs.order.lines[2]["a.b"].x=2'),
        )  # fmt: skip
        assert body_of(repaired)[1]["order"]["lines"][2] == {"sku": "A-1", "a.b": {"x": 2}}
        assert kind_of(repaired.change) == "kwargs.order.lines[].sku, kwargs.order.lines[].a.b.x"

    def test_of_a_header(self, repair):
        repaired = repair(assignments=("headers.tenant=acme",))
        assert repaired.letter.envelope.headers["tenant"] == "acme"
        assert repaired.letter.envelope.body == message((17,), {"currency": "EUX"}).envelope.body
        assert repaired.change == '+ headers.tenant = "acme"'

    @pytest.mark.parametrize(
        "text",
        [
            "currency", "kwargs=5", "kwargs.currency", "kwargs..x=1", "kwargs[x]=1", "=1",
            "kwargs.x[=1", "two words=1", "", r'kwargs["\x"]=1', 'kwargs["\t"]=1',
            f"args[{'9' * 5_000}]=1",
        ],
    )  # fmt: skip
    def test_a_wrong_assignment_is_an_error_before_anything_is_sent(self, app, text):
        with pytest.raises(RepairError, match=r"--set .*(begin with|write it like)"):
            Repairs(app, Repair(assignments=(text,)), Redactor())

    @pytest.mark.parametrize(
        ("text", "args", "kwargs"),
        [
            ("order_id=7", [7], {"currency": "EUX"}),
            ("currency=USD", [17], {"currency": "USD"}),
            ("note=late", [17], {"currency": "EUX", "note": "late"}),
        ],
    )
    def test_of_a_parameter_by_its_name(self, app, repair, text, args, kwargs):
        @app.task(name="shop.charge", shared=False)
        def charge(order_id, currency="EUR", note=""):
            raise NotImplementedError

        app.finalize()
        assert body_of(repair(assignments=(text,)))[:2] == [args, kwargs]

    def test_deep_inside_of_a_parameter(self, app, repair):
        @app.task(name="shop.charge", shared=False)
        def charge(order):
            raise NotImplementedError

        app.finalize()
        repaired = repair(({"lines": [{"sku": "a"}]},), {}, assignments=("order.lines[0].sku=b",))
        assert body_of(repaired)[0] == [{"lines": [{"sku": "b"}]}]

    @pytest.mark.parametrize("text", ["curency=USD", "embed.chain=1", "kwargsx.y=1"])
    def test_of_a_parameter_that_the_task_does_not_have(self, app, repair, text):
        assert "its task is not in this app" in repair(assignments=(text,)).why_not

        @app.task(name="shop.charge", shared=False)
        def charge(order_id, currency="EUR"):
            raise NotImplementedError

        app.finalize()
        why = f"its task has no parameter {text.split('=')[0].split('.')[0]}; write --set kwargs.{text}"
        assert why in repair(assignments=(text,)).why_not

    @pytest.mark.parametrize("name", ["id", "task", "group", "retries", "eta", "x-dlq-redrive"])
    def test_of_headers_that_have_to_stay(self, app, name):
        with pytest.raises(RepairError, match=rf"--set headers.{name}=1: it changes"):
            Repairs(app, Repair(assignments=(f"headers.{name}=1",)), Redactor())

    @pytest.mark.parametrize(
        ("text", "place"),
        [
            ("args[3]=1", "args[3]"), ("args.x=1", "args.x"), ("kwargs.order.id=1", "kwargs.order"),
            ("kwargs[0]=1", "kwargs[0]"), ("kwargs.currency.x=1", "kwargs.currency.x"),
            ("args[0][1]=1", "args[0][1]"), ("args[0].a.b=1", "args[0].a"),
        ],
    )  # fmt: skip
    def test_without_a_place_in_this_message(self, repair, text, place):
        repaired = repair(assignments=(text,))
        assert repaired.why_not == f"it has no {place} that --set {text} could change"
        assert repaired.change == ""

    def test_secrets_are_hidden_in_the_change(self, repair):
        repaired = repair((), {"password": "a", "card": {"token": "b"}}, assignments=(
            "kwargs.password=hunter2", "kwargs.card.token=hunter3", 'kwargs.api_key={"x": "hunter4"}',
        ))  # fmt: skip
        assert body_of(repaired)[1]["password"] == "hunter2"
        assert repaired.change.splitlines() == [
            "- kwargs.password = [redacted]",
            "+ kwargs.password = [redacted]",
            "- kwargs.card.token = [redacted]",
            "+ kwargs.card.token = [redacted]",
            "+ kwargs.api_key = [redacted]",
        ]

    def test_celerys_copies_of_the_arguments_follow(self, repair):
        copied = message((17,), {"a": 1}, argsrepr="(17,)", kwargsrepr="{'a': 1}")
        headers = repair(
            sent=copied, assignments=("args[0]=5", "kwargs.a=2")
        ).letter.envelope.headers  # fmt: skip
        assert (headers["argsrepr"], headers["kwargsrepr"]) == ("(5,)", "{'a': 2}")

    def test_a_copy_that_its_sender_chose_does_not_tell_more(self, repair):
        copied = message((17, "4111"), argsrepr="(17, '…')", kwargsrepr="{}")
        repaired = repair(sent=copied, assignments=("args[1]=4222",))
        headers = repaired.letter.envelope.headers
        assert (headers["argsrepr"], headers["kwargsrepr"]) == ("(changed)", "{}")
        assert "repr" not in repaired.change


class TestNamedRepairs:
    def test_gets_the_parts_and_returns_new_ones(self, repair, named):
        def change(args, kwargs, headers):
            return (args[0] + 1,), {**kwargs, "currency": "USD"}, {**headers, "tenant": "acme"}

        repaired = repair(function=named(change), assignments=("args[0]=5",))
        assert body_of(repaired) == [[6], {"currency": "USD"}, EMBED]
        assert kind_of(repaired.change) == "args[], kwargs.currency, headers.tenant"

    def test_may_change_its_copies(self, repair, named):
        def change(args, kwargs, headers):
            kwargs["currency"] = headers["list"][0] = "USD"
            return args, kwargs, headers

        made = message((1,), {"currency": "EUX"}, list=["a"])
        repaired = repair(sent=made, function=named(change))
        assert body_of(repaired)[1] == {"currency": "USD"}
        assert made.envelope.headers["list"] == ["a"]
        assert '- headers.list[0] = "a"' in repaired.change

    def test_may_leave_a_letter_out(self, repair, named):
        repaired = repair(function=named(lambda *_: None))
        assert repaired.why_not == "repair 'in euros' left it out"

    @pytest.mark.parametrize("error", [ValueError("no such order"), SystemExit(3)])
    def test_an_error_of_a_repair_concerns_one_letter(self, repair, named, error):
        def change(*_):
            raise error

        why = repair(function=named(change)).why_not
        assert why.startswith(f"repair 'in euros' raised {type(error).__name__}: ")

    @pytest.mark.parametrize(
        ("returned", "words"),
        [
            ("abc", "must return args, kwargs and headers"),
            (17, "must return args, kwargs and headers"),
            (([], {}), "must return args, kwargs and headers"),
            ((None, {}, {}), "args are of type NoneType"),
            (([], [], {}), "kwargs must be a table whose keys are text"),
            (([], {1: 2}, {}), "kwargs must be a table whose keys are text"),
            (([], {}, None), "headers must be a table whose keys are text"),
            (([], {}, {}), "changes the task id (headers.id)"),
        ],
    )
    def test_nonsense(self, repair, named, returned, words):
        assert words in repair(function=named(lambda *_: returned)).why_not

    @pytest.mark.parametrize("name", ["id", "task", "group_index", "x-dlq-letter"])
    def test_may_not_change_fixed_headers(self, repair, named, name):
        change = named(lambda args, kwargs, headers: (args, kwargs, {**headers, name: "other"}))
        assert f"headers.{name}" in repair(function=change).why_not

    def test_values_that_the_serializer_cannot_encode(self, repair, named):
        change = named(lambda args, kwargs, headers: ([object()], kwargs, headers))
        assert "json cannot encode it: EncodeError" in repair(function=change).why_not

    def test_one_that_the_app_does_not_have(self, app, named):
        named(print)
        with pytest.raises(RepairError) as caught:
            Repairs(app, Repair(function="in eros"), Redactor())
        said = "'in eros' is not a repair of this app; did you mean 'in euros'? there is in euros."
        assert str(caught.value).startswith(said)


class TestSerializers:
    @pytest.mark.parametrize(
        ("name", "dump", "load"),
        [
            ("application/x-yaml", lambda body: yaml.safe_dump(body).encode(), yaml.safe_load),
            ("application/x-msgpack", msgpack.packb, msgpack.unpackb),
            ("application/x-python-serialize", pickle.dumps, pickle.loads),
        ],
    )
    def test_each_is_read_and_written(self, app, repair, name, dump, load):
        app.conf.accept_content = ["json", name]
        made = letter(
            envelope=envelope(
                body=dump([[17], {"currency": "EUX"}, EMBED]), content_type=name,
                content_encoding="utf-8" if "yaml" in name else "binary",
            )
        )  # fmt: skip
        repaired = repair(sent=made, assignments=("kwargs.currency=USD",))
        assert repaired.why_not is None
        after = repaired.letter.envelope
        assert list(load(after.body)) == [[17], {"currency": "USD"}, EMBED]
        assert (after.content_type, after.content_encoding) == (
            made.envelope.content_type, made.envelope.content_encoding,
        )  # fmt: skip

    def test_pickle_is_not_read_where_it_is_not_accepted(self, repair):
        bad = envelope(
            body=pickle.dumps([[], {}, {}]), content_type="application/x-python-serialize"
        )
        assert "ContentDisallowed" in repair(
            sent=letter(envelope=bad), assignments=("kwargs.x=1",)
        ).why_not  # fmt: skip

    def test_objects_without_equality_do_not_count_as_changed(self, app, repair):
        app.conf.accept_content = ["pickle"]
        made = letter(
            envelope=envelope(
                body=pickle.dumps([[Opaque(), float("nan")], {"x": 1}, EMBED]),
                content_type="application/x-python-serialize", content_encoding="binary",
            )
        )  # fmt: skip
        repaired = repair(sent=made, assignments=("kwargs.x=2",))
        assert repaired.change == "- kwargs.x = 1\n+ kwargs.x = 2"

    def test_values_that_only_celerys_json_can_encode(self, repair):
        dated = message((), {"when": {"__type__": "datetime", "__value__": "2026-11-21T00:00:00"}})
        repaired = repair(sent=dated, assignments=("kwargs.x=1",))
        assert body_of(repaired)[1]["when"]["__type__"] == "datetime"

    def test_of_celerys_first_protocol(self, repair):
        body = {"task": "shop.charge", "id": "0d3f", "args": [17], "kwargs": {}, "chord": None}
        made = letter(envelope=envelope(body=json.dumps(body).encode(), headers={}))
        repaired = repair(sent=made, assignments=("args[0]=5",), to_task="shop.refund")
        assert body_of(repaired) == {**body, "args": [5], "task": "shop.refund"}
        assert "first" in repair(sent=made, countdown_s=5.0).why_not


class Opaque:
    """Equal to nothing but itself."""


class TestElsewhere:
    def test_to_another_queue(self, repair):
        repaired = repair(to_queue="repairs")
        after = repaired.letter.envelope
        assert (after.queue, after.exchange, after.routing_key) == ("repairs", "", "repairs")
        assert repaired.change == '- queue = "celery"\n+ queue = "repairs"'
        assert after.body == message(kwargs={"currency": "EUX"}).envelope.body

    def test_to_another_task(self, repair):
        repaired = repair(to_task="shop.refund")
        assert repaired.letter.task == "shop.refund"
        assert headers_to_send(repaired.letter)["task"] == "shop.refund"
        assert kind_of(repaired.change) == "task"

    def test_a_message_without_a_task_cannot_get_another_one(self, repair):
        nameless = letter(envelope=envelope(headers={"id": "0d3f"}))
        assert "names no task" in repair(sent=nameless, to_task="shop.refund").why_not

    def test_later(self, repair):
        due = NOW + timedelta(minutes=5)
        for repaired in (repair(countdown_s=300.0), repair(eta=due)):
            assert headers_to_send(repaired.letter)["eta"] == due.isoformat()
            assert repaired.change == f'+ eta = "{due.isoformat()}"'
        assert headers_to_send(repair().letter)["eta"] is None

    def test_with_another_priority(self, repair):
        repaired = repair(priority=9)
        assert repaired.letter.envelope.properties["priority"] == 9
        assert repaired.change == "- priority = 0\n+ priority = 9"


def test_a_long_change_is_cut(repair):
    repaired = repair(list(range(300)), {}, assignments=tuple(f"args[{n}]=x" for n in range(300)))
    assert len(repaired.change.splitlines()) == 101
    assert repaired.change.endswith("… 500 more lines")


def test_changes_of_one_kind_have_one_name(repair):
    changes = [repair(assignments=(f"kwargs.currency={value}",)).change for value in ("USD", "GBP")]
    assert len(set(changes)) == 2
    assert {kind_of(change) for change in changes} == {"kwargs.currency"}
    assert kind_of("") == ""


def test_a_repair_is_described_without_its_secrets():
    repair = Repair(
        assignments=('kwargs.card["token"]=4711', "args[0].sku=A-1", "kwargs.password=x"),
        function="in euros", to_queue="slow", countdown_s=5.0,
        eta=datetime(2026, 5, 31, tzinfo=timezone.utc),
    )  # fmt: skip
    assert described(repair, Redactor(("token", "password"))) == {
        "set": ["kwargs.card.token=[redacted]", 'args[0].sku="A-1"', "kwargs.password=[redacted]"],
        "function": "in euros",
        "to_queue": "slow",
        "countdown_s": 5.0,
        "eta": "2026-05-31T00:00:00+00:00",
    }
    long = described(Repair(assignments=(f"args[0]={'x' * 9_000}",)), Redactor(()))
    assert len(long["set"][0]) <= LINE
    assert described(Repair(), Redactor(())) == {}


HUGE = 10**4_300


@pytest.mark.parametrize("content_type", ["application/json", "application/x-python-serialize"])
@pytest.mark.parametrize("place", ["args", "kwargs", "headers"])
def test_a_number_that_cannot_be_written_concerns_its_letter_only(app, content_type, place):
    def enlarge(args, kwargs, headers):
        return (
            [HUGE] if place == "args" else args,
            {"amount": HUGE} if place == "kwargs" else kwargs,
            {**headers, "amount": HUGE} if place == "headers" else headers,
        )

    app.conf.accept_content = ["json", "pickle"]
    functions_of(app).repairs["enlarge"] = enlarge
    # Celery's own copies of the arguments.
    headers = {"id": "0d3f", "task": "shop.charge", "argsrepr": "[17]", "kwargsrepr": "{}"}
    body = pickle.dumps(([17], {}, EMBED)) if "python" in content_type else message().envelope.body
    sent = letter(envelope=envelope(body=body, content_type=content_type, headers=headers))
    repaired = Repairs(app, Repair(function="enlarge"), Redactor()).repaired(sent, NOW)
    assert repaired.letter is sent or place == "headers"
    assert place == "headers" or "cannot" in repaired.why_not


def test_a_letter_that_cannot_be_decrypted_is_refused_with_the_reason(repair, app):
    sealed = letter("a", unreadable="The key is not here.")
    assert (
        Repairs(app, Repair(), Redactor()).repaired(sealed, NOW).why_not == "The key is not here."
    )
