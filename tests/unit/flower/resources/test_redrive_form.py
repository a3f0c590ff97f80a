"""The form of a redrive of many letters: suggestions, and the plan."""

import json
import re
from dataclasses import replace
from html import unescape

import pytest
from support.factories import attempt, envelope, letter

from celery_dlq.api.queue import DeadLetterQueue
from celery_dlq.redrive.operation import Operations as Redrives

REDRIVE = "/dead-letters/redrive"


def field(page, name):
    return dict(page.form(REDRIVE))[name]


@pytest.fixture
def many(store):
    """How many letters are there."""

    def many(count):
        store.letters.save([letter(f"{number}", fingerprint="ffff") for number in range(count)])

    return many


@pytest.mark.parametrize(
    ("count", "canary", "rate"),
    [(1, "", ""), (19, "", ""), (20, "5", "1/s"), (121, "5", "3/s"), (3_100, "5", "50/s")],
)
def test_many_letters_get_a_suggested_canary_and_rate(ann, many, count, canary, rate):
    many(count)
    page = ann.get(f"{REDRIVE}?group=ffff")
    assert (field(page, "canary"), field(page, "rate")) == (canary, rate)
    assert bool(page.find("p", id="dlq-suggested")) is bool(canary)


def test_it_warns_of_a_group_whose_last_redrive_failed(ann, store, many, monkeypatch):
    many(3)
    assert "last redrive" not in ann.get(f"{REDRIVE}?group=ffff").text
    monkeypatch.setattr(
        type(store.sendings), "last_of_causes", lambda _store: {"ffff": ("3fa9", 2, 5)}
    )
    said = "Group ffff: 2 of 5 failed again in its last redrive, operation 3fa9."
    assert said in ann.get(f"{REDRIVE}?group=ffff").text


def test_suggestions_can_be_emptied(ann, store, many):
    many(20)
    form = dict(ann.get(f"{REDRIVE}?group=ffff").form(REDRIVE))
    sent = ann.post(REDRIVE, [*{**form, "canary": "", "rate": "", "number": "20"}.items()])
    assert sent.status == 303
    [made] = store.operations.find()
    assert (made.orders.pacing.canary, made.orders.pacing.rate) == (0, None)


def test_what_was_typed_is_kept_after_an_error(ann, many):
    many(20)
    form = dict(ann.get(f"{REDRIVE}?group=ffff").form(REDRIVE))
    again = ann.post(REDRIVE, [*{**form, "canary": "", "rate": "9/s", "number": "7"}.items()])
    assert again.status == 409
    assert (field(again, "canary"), field(again, "rate")) == ("", "9/s")


def by_rest(visitor, **given):
    """Ask for a redrive by the REST API."""
    headers = {"Content-Type": "application/json"}
    return visitor.ask("POST", "/api/dead-letters/redrive", json.dumps(given), headers)


def chosen(page):
    """Whether each repair is chosen."""
    options = page.body.partition('id="dlq-repair"')[2].partition("</select>")[0]
    found = re.findall(r'<option value="([^"]*)"( selected)?>', options)
    return {unescape(name): bool(mark) for name, mark in found}


def plan_in(page):
    [(_, plan)] = page.find("section", id="dlq-plan")
    return " ".join(plan.split())


def check(visitor, query, **values):
    """Press "Check which letters can be sent" in a form with these values."""
    form = dict(visitor.get(f"{REDRIVE}?{query}").form(REDRIVE))
    return visitor.post(REDRIVE, {**form, **values, "plan": "1"})


def test_the_plan_is_made_on_request(ann, store):
    page = ann.get(f"{REDRIVE}?task=charge")
    assert page.find("section", id="dlq-plan") == []
    [(button, _)] = page.find("button", id="dlq-make-plan")
    assert (button["name"], button["value"], "formnovalidate" in button) == ("plan", "1", True)
    for planned in (check(ann, "task=charge"), ann.get(f"{REDRIVE}?task=charge&plan=1")):
        assert planned.status == 200
        assert plan_in(planned) == (
            "Plan nothing has been sent yet Would be sent2 of 2Cannot be sent0May run twice0"
        )
        assert field(planned, "number") == ""
    assert store.operations.find() == []


def test_the_plan_names_what_cannot_be_sent(ann, store):
    lost = envelope("lost", queue="", routing_key="")
    store.letters.save([letter("lost", attempt(), envelope=lost, fingerprint="ffff")])
    plan = plan_in(ann.get(f"{REDRIVE}?group=ffff&plan=1"))
    assert "Would be sent0 of 1Cannot be sent1" in plan
    assert "Cannot be sent, for example" in plan


def test_the_plan_counts_what_may_run_twice(ann, store, monkeypatch):
    monkeypatch.setattr(type(store.sendings), "count_awaited", lambda *_: 1)
    plan = plan_in(ann.get(f"{REDRIVE}?task=charge&state=dead&state=redriven&plan=1"))
    assert "May run twice1" in plan
    assert "sent again, they may run twice." in plan


def test_what_was_typed_is_kept_after_a_check(ann, many):
    many(20)
    page = check(ann, "group=ffff", canary="", rate="9/s", why="a fix")
    assert (field(page, "canary"), field(page, "rate"), field(page, "why")) == ("", "9/s", "a fix")


def test_other_acts_have_no_plan(ann):
    assert ann.get("/dead-letters/discard?task=charge").find("section", id="dlq-plan") == []
    assert ann.get("/dead-letters/discard?task=charge&plan=1").status == 400


def in_set(page):
    """The field "Set arguments", and the diffs in the plan."""
    [(_, text)] = page.find("textarea", id="dlq-set")
    return text, [said.strip() for found, said in page.find("pre", class_="dlq-code dlq-diff")]


class TestChanges:
    """Changes of the messages of many letters."""

    USD = "kwargs.currency=USD"

    def send(self, visitor, page, **values):
        form = dict(page.form(REDRIVE))
        return visitor.post(REDRIVE, {**form, "set": in_set(page)[0], "number": "2", **values})

    def test_the_plan_shows_them_in_real_letters(self, ann, store):
        page = check(ann, "task=charge", set=f"\r\n {self.USD} \r\n")
        text, diffs = in_set(page)
        assert text.strip() == self.USD
        assert diffs == ['- kwargs.currency = "EUX"\n+ kwargs.currency = "USD"'] * 2
        signs = [
            found["class"] for found, _ in page.find("span") if "diff" in found.get("class", "")
        ]
        assert signs == ["dlq-diff-old", "dlq-diff-new"] * 2
        assert "Would be changed2 of 2 that were checked" in plan_in(page)
        assert store.operations.find() == []

    def test_at_most_five_letters_are_shown(self, ann, many):
        many(7)
        page = check(ann, "group=ffff", set=self.USD)
        assert len(in_set(page)[1]) == 5
        assert "Would be changed7 of 7" in plan_in(page)

    def test_letters_to_which_they_cannot_be_applied_are_named(self, ann, store):
        longer = envelope("two", body=b'[[17, "EUX"], {}, {}]')
        store.letters.save([letter("two", envelope=longer, fingerprint="ffff"),
                            letter("one", fingerprint="ffff")])  # fmt: skip
        page = check(ann, "group=ffff", set="args[1]=EUR")
        assert "Would be sent1 of 2Cannot be sent1" in plan_in(page)
        [(_, cannot)] = page.find("ul", id="dlq-cannot")
        said = "it has no args[1] that --set args[1]=EUR could change one"
        assert " ".join(cannot.split()) == said
        assert in_set(page)[1] == ['- args[1] = "EUX"\n+ args[1] = "EUR"']

    def test_an_argument_that_the_task_does_not_take_is_not_sent(self, ann):
        page = check(ann, "task=charge", set="kwargs.curency=USD")
        assert "Would be sent0 of 2Cannot be sent2" in plan_in(page)
        assert "unexpected kwargs.curency" in plan_in(page)

    def test_letters_that_stay_the_same_are_said(self, ann):
        page = check(ann, "task=charge", set="kwargs.currency=EUX")
        assert "None of the 2 messages that were checked would change." in plan_in(page)

    def test_they_are_shown_without_the_code_of_the_task(self, ann):
        page = check(ann, "task=mail", set=self.USD)
        assert len(in_set(page)[1]) == 1
        assert "task shop.mail is not registered in this app" in plan_in(page)

    def test_checked_changes_go_to_the_operation(self, ann, store):
        page = check(ann, "task=charge", set=f"{self.USD}\nargs[0]=18", rate="5/s")
        sent = self.send(ann, page, why="a typo")
        [made] = store.operations.find()
        assert sent.headers["Location"] == f"/dead-letters/operations/{made.id}"
        assert made.orders.repair.assignments == (self.USD, "args[0]=18")
        assert (made.orders.pacing.rate, made.orders.why) == (5.0, "a typo")
        [row] = store.audit.find(act="redrive").rows
        assert row.detail["repair"] == {"set": ['kwargs.currency="USD"', "args[0]=[redacted]"]}
        [(_, orders)] = ann.get(sent.headers["Location"]).find("section", id="dlq-orders")
        assert 'kwargs.currency="USD" args[0]=[redacted]' in orders

    def test_changes_that_were_not_shown_are_not_sent(self, ann, store):
        form = dict(ann.get(f"{REDRIVE}?task=charge").form(REDRIVE))
        answer = ann.post(REDRIVE, {**form, "set": self.USD, "number": "2"})
        assert (answer.status, store.operations.find()) == (409, [])
        assert "These changes were not checked yet, so nothing was sent." in answer.text
        assert len(in_set(answer)[1]) == 2
        assert self.send(ann, answer).status == 303

    @pytest.mark.parametrize(
        "other",
        [{"set": "kwargs.currency=EUR"}, {"task": "mail"}, {"seen": ""}, {"seen": "1.2.3"}],
        ids=["changes", "letters", "no mark", "forged mark"],
    )
    def test_the_mark_covers_the_changes_and_the_letters(self, ann, store, other):
        page = check(ann, "task=charge", set=self.USD)
        assert self.send(ann, page, **other).status == 409
        assert store.operations.find() == []

    def test_changes_of_which_no_letter_could_be_checked_are_not_sent(
        self, ann, store, monkeypatch
    ):
        plan = Redrives.plan

        def untried(redrives, *args):
            return replace(plan(redrives, *args), tried=0, changed=0, changes=())

        monkeypatch.setattr(Redrives, "plan", untried)
        page = check(ann, "task=charge", set=self.USD)
        assert "Would be changed" not in plan_in(page)
        assert self.send(ann, page).status == 409
        assert store.operations.find() == []

    def test_another_number_shows_the_changes_again(self, ann, store):
        page = check(ann, "task=charge", set=self.USD)
        again = self.send(ann, page, number="7")
        assert (again.status, len(in_set(again)[1])) == (409, 2)
        assert self.send(ann, again).status == 303

    def test_without_changes_nothing_has_to_be_checked(self, ann, store):
        page = check(ann, "task=charge", set=self.USD)
        assert self.send(ann, page, set=" \n").status == 303
        assert store.operations.find()[0].orders.repair.assignments == ()

    @pytest.mark.parametrize(
        ("text", "said"),
        [
            ("two words=USD", "begin with a name of a parameter, or with args, kwargs, headers"),
            ("kwargs.currency", "write it like kwargs.lines[2].sku=A-1"),
            ('kwargs["\\x"]=1', "write it like"),
            ("args[" + "9" * 4_400 + "]=1", "has more than 2,000 characters"),
            ("headers.task=shop.other", "it changes headers.task"),
            ("headers.id=1", "it changes the task id"),
            ('kwargs.lines=[1, {"a": ]', "begins like JSON, but is not JSON"),
            ('kwargs.name="Ann', "a text is written in double quotes"),
            ("kwargs.a=" + "x" * 2_000, "make it shorter, or edit the letters one by one"),
            ("kwargs.a=1\n" * 21, "21 lines are more than 20"),
        ],
    )  # fmt: skip
    def test_a_wrong_change_is_explained_and_sends_nothing(self, ann, store, text, said):
        page = check(ann, "task=charge", set=text)
        assert page.status == 400
        [(_, alert)] = page.find("p", role="alert")
        assert said in alert
        assert page.find("section", id="dlq-plan") == []
        assert in_set(page)[0].strip() == text.strip()
        answer = self.send(ann, page)
        assert (answer.status, store.operations.find()) == (400, [])

    def test_a_text_in_braces_may_be_quoted(self, ann):
        page = check(ann, "task=charge", set='kwargs.currency="{EUR}"')
        assert '+ kwargs.currency = "{EUR}"' in in_set(page)[1][0]

    def test_secrets_are_hidden_in_the_plan_and_on_the_operation(self, ann, store):
        sent = envelope("s", body=b'[[17], {"password": "hunter2"}, {}]')
        store.letters.save([letter("s", envelope=sent, fingerprint="ffff")])
        page = check(ann, "group=ffff", set="kwargs.password=tr0ub4dor")
        assert "hunter2" not in page.body
        assert "tr0ub4dor" not in plan_in(page)
        made = self.send(ann, page, number="").headers["Location"]
        assert "tr0ub4dor" not in ann.get(made).body

    @pytest.mark.parametrize("field", ["transform", "function"])
    def test_a_function_of_a_module_cannot_be_named(self, ann, store, field):
        form = dict(ann.get(f"{REDRIVE}?task=charge").form(REDRIVE))
        answer = ann.post(REDRIVE, {**form, field: "os:system", "number": "2"})
        assert (answer.status, store.operations.find()) == (400, [])

    def test_the_page_of_a_letter_takes_no_changes(self, ann, store):
        action = "/dead-letters/letters/77e1/redrive"
        form = dict(ann.get("/dead-letters/letters/77e1").form(action))
        assert ann.post(action, {**form, "set": self.USD}).status == 303
        assert store.operations.find()[0].orders.repair.assignments == ()


def test_it_names_the_parameters_of_the_task(ann, many, store):
    many(2)
    said = "one in a line: order_id, currency"
    assert said in ann.get(f"{REDRIVE}?group=ffff").text
    store.letters.save([letter("other", fingerprint="ffff", task="shop.mail")])
    assert said not in ann.get(f"{REDRIVE}?group=ffff").text


class TestRepairs:
    """Functions of the app that change messages, by their names."""

    @pytest.fixture
    def dlq(self, app):
        return DeadLetterQueue.of(app)

    @pytest.fixture
    def euros(self, dlq):
        @dlq.repair("in <euros>")
        def in_euros(args, kwargs, headers):
            return args, {**kwargs, "currency": "EUR", "token": "tr0ub4dor"}, headers

        return "in <euros>"

    def test_without_repairs_there_is_no_choice(self, ann):
        assert ann.get(f"{REDRIVE}?task=charge").find("select", id="dlq-repair") == []

    def test_the_choice_has_those_of_the_app(self, ann, euros):
        assert chosen(ann.get(f"{REDRIVE}?task=charge")) == {"": False, euros: False}

    def test_its_changes_are_shown_and_then_sent(self, ann, store, euros):
        page = check(ann, "task=charge", repair=euros)
        assert "Would be changed2 of 2" in plan_in(page)
        assert '+ kwargs.currency = "EUR"' in plan_in(page)
        assert "tr0ub4dor" not in page.body
        assert chosen(page) == {"": False, euros: True}
        assert store.operations.find() == []
        form = {**dict(page.form(REDRIVE)), "repair": euros, "number": "2"}
        assert ann.post(REDRIVE, form).status == 303
        [made] = store.operations.find()
        assert made.orders.repair.function == euros
        assert euros in ann.get(f"/dead-letters/operations/{made.id}").text

    def test_changes_that_were_not_shown_are_not_sent(self, ann, store, euros):
        form = dict(ann.get(f"{REDRIVE}?task=charge").form(REDRIVE))
        answer = ann.post(REDRIVE, {**form, "repair": euros, "number": "2"})
        assert (answer.status, store.operations.find()) == (409, [])
        assert '+ kwargs.currency = "EUR"' in plan_in(answer)

    def test_an_unknown_one_is_refused(self, ann, store, euros):
        page = check(ann, "task=charge", repair="in eros")
        assert page.status == 400
        [(_, alert)] = page.find("p", role="alert")
        assert "'in eros' is not a repair of this app; did you mean 'in <euros>'?" in alert
        assert store.operations.find() == []

    def test_rest_refuses_an_unknown_one(self, ann, store, euros):
        sent = by_rest(ann, task="charge", repair="in eros", number=2)
        assert (sent.status, store.operations.find()) == (400, [])
        assert "is not a repair of this app" in sent.body

    def test_one_that_raises_concerns_its_letters(self, ann, dlq):
        dlq.repair("broken")(lambda *_: 1 / 0)
        plan = plan_in(check(ann, "task=charge", repair="broken"))
        assert "Would be sent0 of 2" in plan
        assert "repair 'broken' raised ZeroDivisionError: division by zero" in plan

    def test_rest_takes_its_name(self, ann, store, euros):
        assert by_rest(ann, task="charge", repair=euros, number=2).status == 202
        assert store.operations.find()[0].orders.repair.function == euros

    def test_upgrades_are_shown_without_a_choice(self, ann, dlq):
        @dlq.upgrade("shop.charge", to="2026.12")
        def renamed(args, kwargs, headers):
            return [*args, 99], kwargs, headers

        dlq.store.letters.save(
            [letter("old", release="2026.11", fingerprint="ffff"),
             letter("new", release="2026.12", fingerprint="ffff")]
        )  # fmt: skip
        plan = plan_in(check(ann, "group=ffff"))
        assert "Would be changed1 of 2" in plan
        assert "+ args[1] = 99" in plan
