"""Letters by the values in their arguments and their messages: the list, the acts and REST."""

import json
from urllib.parse import urlencode

import pytest
from celery import Celery
from support.factories import T0, attempt, letter, parking

from celery_dlq import DeadLetterQueue, DLQTask
from celery_dlq.flower.http.request import VALUE_LIMIT, read_filter, to_pairs
from celery_dlq.model.states import State
from celery_dlq.store.base import Filter
from celery_dlq.store.sql import SQLStore

LETTERS, DISCARD, REDRIVE = (f"/dead-letters/{name}" for name in ("letters", "discard", "redrive"))
DELETE = "/dead-letters/delete"
API = "/api/dead-letters"

HOSTILE = {
    "script": "<script>alert(1)</script>",
    "quotes": "\" onmouseover=alert(1) x='",
    "end of a form": "</form><img src=x onerror=alert(1)>",
    "template": "{{ handler.application.settings }}",
    "address": "a&value=b#c;%2e+d=e",
    "nul": "a\x00b",
    "line breaks": "a\nb\r\nc\rd",
    "escape": "\x1b[31m",
    "emoji": "\U0001f407\U0010ffff",
    "right to left": "\u202egpj.exe",
    "equals": "=",
    "longest": "x" * 255,
}


@pytest.fixture
def orders(store):
    """Letters about the order 4711, the newest first: by name, by position, in the message."""
    store.letters.save(
        [
            letter("named", attempt(minutes=50), args=[], kwargs={"order_id": 4711, "by": "ann"}),
            letter("placed", attempt(minutes=45), args=["4711"], kwargs={}),
            letter(
                "deep",
                attempt(minutes=35),
                args=[{"lines": [{"sku": "x-1"}, {"sku": "x-2"}]}],
                kwargs={},
            ),
            letter("told", attempt(minutes=40), message="no order 4711", args=[1], kwargs={"n": 0}),
        ]
    )


def shown(answer):
    assert answer.status == 200, answer.text
    return [found["value"] for found, _ in answer.find("input", name="id")]


def found_by_rest(visitor, query):
    answer = visitor.get(f"{API}?{query}")
    assert answer.status == 200, answer.body
    return [one["task_id"] for one in json.loads(answer.body)["letters"]]


def send(visitor, path, body):
    answer = visitor.ask(
        "POST", f"{API}{path}", json.dumps(body), {"Content-Type": "application/json"}
    )
    return answer.status, json.loads(answer.body)


def by_browser(text):
    """``text`` as a browser sends it: HTML cannot have NUL, and forms end lines with CRLF."""
    lines = text.replace("\x00", "\ufffd").replace("\r\n", "\n").replace("\r", "\n")
    return lines.replace("\n", "\r\n")


def agree(visitor, page, action, **more):
    """Send the form of a page, filled with these values."""
    pairs = [(name, by_browser(text)) for name, text in page.form(action) if name not in more]
    return visitor.post(action, [*pairs, *more.items()])


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("arg=order_id=4711", ["named", "placed"]),
        ("arg=order_id=4711&arg=by=ann", ["named"]),
        ("arg=0=4711", ["placed"]),
        ("arg=order_id.lines.sku=x-2", ["deep"]),
        ("arg=currency=EUX", ["77e1", "0d3f2222-bbbb", "0d3f1111-aaaa"]),
        ("value=4711", ["named", "placed", "told"]),
        ("value=4711&value=ann", ["named"]),
        ("value=4711&arg=order_id=4711&value=&arg=+", ["named", "placed"]),
        ("value=+4711+&since=18m", ["named", "placed"]),
        ("value=471", []),
    ],
)
def test_letters_are_found_by_value(ann, orders, query, found):
    assert shown(ann.get(f"{LETTERS}?{query}")) == found
    assert found_by_rest(ann, query) == found


def test_without_the_code_of_the_tasks_only_names_are_known(visit, app, orders):
    bare = Celery("bare", broker="memory://", set_as_current=False)
    bare.conf.dlq_store_url = app.conf.dlq_store_url
    visitor = visit(capp=bare, basic_auth=["ann:secret"])
    visitor.log_in("ann", "secret")
    assert shown(visitor.get(f"{LETTERS}?arg=order_id=4711")) == ["named"]
    bare.close()


def test_a_position_counts_for_its_task_only(ann, app, store, orders):
    @app.task(name="shop.mail", base=DLQTask, shared=False)
    def mail(address, order_id):
        return order_id

    places = ([4711, "a"], ["a", 4711])
    store.letters.save(
        [letter(f"mail{at}", task="shop.mail", args=args) for at, args in enumerate(places)]
    )
    assert shown(ann.get(f"{LETTERS}?arg=order_id=4711")) == ["named", "placed", "mail1"]


def test_values_stay_in_the_form_and_in_the_acts(ann, orders):
    page = ann.get(f"{LETTERS}?arg=order_id=4711&value=4711&value=ann")
    fields = {
        name: [found["value"] for found, _ in page.find("input", name=name)]
        for name in ("arg", "value")
    }
    assert fields == {"arg": ["order_id=4711", ""], "value": ["4711", "ann", ""]}
    [(link, _)] = [one for one in page.find("a") if one[1] == "Redrive all that match"]
    assert link["href"] == f"{REDRIVE}?arg=order_id%3D4711&value=4711&value=ann"
    assert [text for _, text in ann.get(link["href"]).find("h1")] == ["Redrive 1 letter"]


def test_letters_with_a_frequent_value_are_not_counted(ann, store, monkeypatch):
    store.letters.save([letter(f"m{n}", attempt(minutes=-n), args=["all"]) for n in range(60)])
    monkeypatch.setattr(store.counts, "letters", lambda wanted: pytest.fail("counted"))
    page = ann.get(f"{LETTERS}?value=all")
    assert "More than 50 letters match" in page.text
    [(following, _)] = page.find("a", rel="next")
    assert len(shown(ann.get(following["href"]))) == 10


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_values_stay_text_and_stay_the_same(ann, store, name):
    text = HOSTILE[name]
    store.letters.save([letter("hostile", args=[{"x": text}], kwargs={"y": text})])
    store.letters.save([letter("plain", args=[{"x": "b"}], kwargs={"y": "b"})])
    for pairs in ([("value", text)], [("arg", f"y={text}"), ("arg", f"order_id.x={text}")]):
        query, harmless = urlencode(pairs), "&".join(f"{name}=b" for name, _ in pairs)
        page, plain = (
            ann.get(f"{LETTERS}?{asked}") for asked in (query, harmless.replace("arg=b", "arg=y=b"))
        )
        assert set(page.elements_and_names()) <= set(plain.elements_and_names())
        assert shown(page) == found_by_rest(ann, query) == ["hostile"]
        asking = ann.get(f"{DISCARD}?{query}")
        assert "Discard 1 letter" in asking.text
        assert agree(ann, asking, DISCARD, why="x").status == 303
        store.closing.undiscard(Filter(ids=("hostile",)), who="bob", now=T0)


@pytest.mark.parametrize("name", HOSTILE)
def test_a_filter_in_a_form_is_the_same_filter(name):
    given = {"arg": [f"a={HOSTILE[name]}", "b=1"], "value": [HOSTILE[name], " 7 "], "task": ["x"]}
    wanted = read_filter(given, T0)
    again = {}
    for key, value in to_pairs(wanted):
        again.setdefault(key, []).append(value)
    assert again == given
    assert read_filter(again, T0) == wanted


def test_a_lone_surrogate_is_refused_in_an_address_and_found_by_rest(ann, store):
    store.letters.save([letter("odd", args=["\ud800"])])
    status, made = send(ann, "/redrive", {"value": "\ud800", "number": 1})
    assert (status, made["planned"]) == (202, 1)
    for path in (f"{LETTERS}?value=%ED%A0%80", f"{API}?arg=a=%ED%A0%80"):
        assert ann.get(path).status == 400
    assert ann.get(f"{LETTERS}/odd").status == 200
    assert ann.get("/dead-letters/operations").status == 200


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("arg=order_id", "write its name, =, and its value"),
        ("arg==4711", "write its name, =, and its value"),
        ("arg=order_id=+", "write its name, =, and its value"),
        ("arg=%3Cb%3E%22", "write its name, =, and its value"),
        (f"value={'x' * 256}", "A value has 1 to 255 characters, not 256"),
        (f"arg=a={'x' * 256}", "A value has 1 to 255 characters, not 256"),
        ("value=%FF", "not UTF-8"),
        ("&".join(["value=1"] * (VALUE_LIMIT + 1)), f"more than {VALUE_LIMIT} values"),
        ("values=1", "did you mean 'value'"),
        ("state=parked&value=1", "The values of parked retries are not kept"),
        ("state=parked&state=dead&arg=a=1", "The values of parked retries are not kept"),
    ],
)
def test_an_invalid_value_is_reported_and_finds_nothing(ann, query, said):
    page = ann.get(f"{LETTERS}?{query}")
    assert page.status == 400
    [(_, text)] = page.find("p", role="alert")
    assert said in text
    assert page.find("input", name="id") == []
    for action in (DISCARD, DELETE):
        page = ann.get(f"{action}?{query}")
        assert page.status == 400
        assert page.find("form") == []
    answer = ann.get(f"{API}?{query}")
    assert (answer.status, said in json.loads(answer.body)["error"]["text"]) == (400, True)


def test_as_many_values_as_one_request_may_have(ann, orders):
    query = "&".join(["value=4711"] * (VALUE_LIMIT - 1))
    assert shown(ann.get(f"{LETTERS}?{query}&arg=by=ann")) == ["named"]


@pytest.mark.parametrize("query", ["value=4711", "arg=order_id=4711"])
def test_groups_have_no_values(ann, query):
    page = ann.get(f"/dead-letters/groups?{query}")
    [(_, text)] = page.find("p", role="alert")
    assert page.status == ann.get(f"{API}/groups?{query}").status == 400
    assert text


class TestActs:
    def test_a_redrive_takes_calls_by_position_too(self, ann, store, orders):
        page = ann.get(f"{REDRIVE}?arg=order_id=4711")
        assert "Redrive 2 letters" in page.text
        assert ("arg", "order_id=4711") in page.form(REDRIVE)
        assert agree(ann, page, REDRIVE, number="2").status == 303
        [operation] = store.operations.find()
        [argument] = operation.wanted.args
        assert (operation.counts.planned, argument.positions) == (2, (("shop.charge", 0),))
        assert "with order_id=4711" in ann.get("/dead-letters/operations").text

    def test_selected_letters_that_have_a_value(self, ann, store, orders):
        page = ann.get(f"{DISCARD}?id=named&id=77e1&value=ann")
        assert "Discard 1 letter" in page.text
        assert agree(ann, page, DISCARD, why="x").status == 303
        assert store.letters.get("named").state is State.DISCARDED
        assert store.letters.get("77e1").state is State.DEAD

    def test_closed_letters_are_deleted_by_value(self, ann, store, orders):
        store.closing.discard(Filter(values=("4711",)), who="bob", why="", now=T0)
        page = ann.get(f"{DELETE}?value=4711")
        assert agree(ann, page, DELETE, number="3").status == 303
        assert store.letters.get("told") is None

    def test_rest_takes_texts_numbers_and_lists(self, ann, store, orders):
        status, told = send(ann, "/discard", {"value": 4711, "why": "x"})
        assert (status, told["error"]["number"]) == (409, 3)
        sent = {"arg": "order_id=4711", "value": [4711, "ann"], "number": 1, "why": "x"}
        assert send(ann, "/discard", sent) == (200, {"discarded": 1})
        status, made = send(ann, "/redrive", {"arg": ["order_id=4711"], "number": 1})
        assert (status, made["planned"]) == (202, 1)
        [argument] = made["wanted"]["args"]
        assert (argument["path"], argument["value"]) == ("order_id", "4711")

    @pytest.mark.parametrize(
        "body",
        [
            {"arg": "order_id"}, {"arg": {"order_id": 4711}}, {"value": "x" * 256},
            {"value": ["1"] * (VALUE_LIMIT + 1)}, {"values": "4711"}, {"args": "order_id=4711"},
            {"value": "4711", "state": "parked"},
        ],
    )  # fmt: skip
    @pytest.mark.parametrize("act", ["redrive", "discard", "delete"])
    def test_an_invalid_request_changes_nothing(self, ann, store, orders, act, body):
        sent = {"number": 3, "why": "x", **body}
        status, told = send(ann, f"/{act}", sent)
        assert (status, told["error"]["status"]) == (400, 400)
        assert store.audit.find().rows == ()

    def test_parked_retries_are_not_taken_by_value(self, ann, store):
        store.parked.park([parking("waits", 60)], now=T0)
        status, told = send(ann, "/discard", {"state": "parked", "value": "17", "why": "x"})
        assert (status, "parked retries" in told["error"]["text"]) == (400, True)
        page = ann.get(f"{DISCARD}?state=parked&value=17")
        assert page.status == 400
        assert "The values of parked retries are not kept" in page.text


class TestLinks:
    def links(self, page):
        return [
            (found["href"], text)
            for found, text in page.find("a")
            if found["href"].startswith(f"{LETTERS}?value=")
        ]

    def test_the_page_of_a_letter_links_its_values(self, ann, store, orders):
        odd = {
            "secret": True,
            "none": None,
            "text": "a&b=<i>",
            "again": [4711],
            "nul": "\x00\ud800",
        }
        store.letters.save([letter("linked", args=[4711, "x" * 256], kwargs=odd)])
        found = self.links(ann.get(f"{LETTERS}/linked"))
        assert found == [
            (f"{LETTERS}?value=4711", "4711"), (f"{LETTERS}?value=a%26b%3D%3Ci%3E", "a&b=<i>"),
        ]  # fmt: skip
        for address, _ in found:
            assert "linked" in shown(ann.get(address))

    def test_secrets_are_not_linked(self, ann, store):
        store.letters.save([letter("secret", args=[], kwargs={"password": "hunter2"})])
        assert self.links(ann.get(f"{LETTERS}/secret")) == []

    def test_some_values_of_many_are_linked(self, ann, store):
        store.letters.save([letter("many", args=list(range(100)))])
        found = self.links(ann.get(f"{LETTERS}/many"))
        assert [text for _, text in found] == [str(number) for number in range(12)]

    def test_values_that_are_not_kept_are_not_linked(self, ann, app, store, orders):
        app.conf.dlq_search_values = 1
        assert len(self.links(ann.get(f"{LETTERS}/named"))) == 1

    def test_without_values_there_are_no_links(self, ann, app, store, orders):
        app.conf.dlq_search_values = 0
        assert self.links(ann.get(f"{LETTERS}/named")) == []


class TestRedactedArguments:
    @pytest.fixture
    def keyed(self, app):
        """Three letters of two addresses, which are redacted."""
        app.conf.update(dlq_redact=("email",), dlq_search_redacted_key="a key of mine")
        queue = DeadLetterQueue.of(app)
        store, display = queue.store, queue.redactor.display
        for name, address in (("a", "ann@x"), ("b", "bob@x"), ("c", "ann@x")):
            kwargs = display({"user": {"email": address}})
            store.letters.save([letter(name, args=[], kwargs=kwargs)])
        return store

    def test_are_found_by_their_exact_value(self, keyed, ann):
        page = ann.get(f"{LETTERS}?arg=user.email=ann@x")
        assert (
            sorted(shown(page)) == sorted(found_by_rest(ann, "arg=user.email=ann@x")) == ["a", "c"]
        )
        assert shown(ann.get(f"{LETTERS}?arg=user.email=ann")) == []

    def test_are_never_shown(self, keyed, ann):
        assert "[redacted" in ann.get(f"{LETTERS}/a").text
        assert "ann@x" not in ann.get(f"{LETTERS}/a").body

    def test_an_act_does_not_repeat_them(self, keyed, ann):
        asking = ann.get(f"{DISCARD}?arg=user.email=ann@x")
        assert "Discard 2 letters" in asking.text
        assert agree(ann, asking, DISCARD, why="x", number=2).status == 303
        assert sorted(shown(ann.get(f"{LETTERS}?state=discarded"))) == ["a", "c"]
        [act] = keyed.audit.find(act="discard").rows
        assert "ann@x" not in json.dumps(act.detail)

    def test_cannot_be_found_without_a_key(self, app, ann):
        app.conf.dlq_redact = ("email",)
        page = ann.get(f"{LETTERS}?arg=user.email=ann@x")
        assert page.status == 400
        assert "set dlq_search_redacted_key" in page.text


def test_an_empty_value_is_not_a_filter():
    assert read_filter({"arg": ["", " "], "value": [""]}, T0) == Filter()


@pytest.fixture
def earlier_letter(app, store):
    """A letter whose values were not kept when it was stored."""
    other = SQLStore(app.conf.dlq_store_url, value_limit=0)
    other.letters.save([letter("earlier", attempt(), args=[4711], kwargs={})])
    other.close()


def test_a_search_says_which_letters_it_may_miss(ann, store, earlier_letter):
    answer = ann.get(f"{LETTERS}?value=4711")
    assert shown(answer) == []
    assert "or before may be missing: their values are not kept yet" in answer.text
    found = json.loads(ann.get(f"{API}?value=4711").body)
    assert (found["letters"], found["values_lack_to"]) == ([], T0.isoformat())
    while store.values.add(letters=100):
        pass
    answer = ann.get(f"{LETTERS}?value=4711")
    assert shown(answer) == ["earlier"]
    assert "may be missing" not in answer.text
    assert json.loads(ann.get(f"{API}?value=4711").body)["values_lack_to"] is None


def test_an_act_says_which_letters_it_may_miss(ann, earlier_letter):
    said = "or before may be missing: their values are not kept yet"
    for act in (DISCARD, REDRIVE, DELETE):
        assert said in ann.get(f"{act}?value=4711").text
        assert said not in ann.get(f"{act}?task=charge").text


def test_values_that_are_not_kept_cannot_be_asked_for(visit, app):
    app.conf.dlq_search_values = 0
    answer = visit().get(f"{LETTERS}?value=4711")
    assert answer.status == 400
    assert "dlq_search_values is 0" in answer.body
