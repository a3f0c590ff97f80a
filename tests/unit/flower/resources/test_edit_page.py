"""The editor of a letter's message."""

import json

import pytest
from support.factories import T0, attempt, envelope, letter

from celery_dlq.api.queue import DeadLetterQueue
from celery_dlq.errors import StoreUnavailable
from celery_dlq.model.states import State
from celery_dlq.store.base import Filter
from celery_dlq.worker.task import DLQTask

ID = "0d3f1111-aaaa"
EDIT = f"/dead-letters/letters/{ID}/edit"
PARTS = ("args", "kwargs", "headers")


def editor_of(visitor, path=EDIT):
    page = visitor.get(path)
    assert page.status == 200, page.text
    return page


def texts_in(page):
    return {found["name"]: text for found, text in page.find("textarea")}


def post(visitor, page, does, path=EDIT, **values):
    """Press a button of the editor, after some fields were changed."""
    written = {name: text for name, text in values.items() if isinstance(text, str)}
    return visitor.post(path, {**dict(page.form(path)), **texts_in(page), **written, "do": does})


def side(page, id_):
    [(_, text)] = page.find("section", id=id_)
    return " ".join(text.split())


def problem(page, name):
    [(_, text)] = page.find("p", id=f"dlq-problem-{name}")
    return text


def is_folded(page):
    [(found, _)] = page.find("details", id="dlq-edit-headers")
    return "open" not in found


def test_the_arguments_come_first_and_the_headers_are_folded(ann):
    page = editor_of(ann)
    texts = texts_in(page)
    assert list(texts) == list(PARTS)
    assert [json.loads(texts[name]) for name in PARTS] == [
        [17],
        {"currency": "EUX"},
        {"lang": "py"},
    ]
    assert is_folded(page)
    assert "Nothing is changed." in side(page, "dlq-edit-diff")


def test_the_first_button_only_checks(ann):
    buttons = [found for found, _ in editor_of(ann).find("button") if found.get("name") == "do"]
    assert [found["value"] for found in buttons] == ["check", "save", "redrive"]


def test_a_form_that_is_not_valid_any_more_keeps_what_was_typed(ann, store):
    page = editor_of(ann)
    answer = post(ann, page, "save", kwargs='{"currency": "USD"}', mark="1.2.3")
    assert (answer.status, store.edits.of_letter(ID)) == (409, [])
    assert "older than twelve hours" in answer.text
    assert texts_in(answer)["kwargs"] == '{"currency": "USD"}'
    assert post(ann, answer, "save").status == 303
    assert store.letters.get(ID).kwargs == {"currency": "USD"}


@pytest.mark.parametrize("does", ["check", "save"])
def test_a_store_that_fails_takes_no_text_away(ann, store, monkeypatch, does):
    page = editor_of(ann)

    def fail(*args, **kwargs):
        raise StoreUnavailable("gone")

    with monkeypatch.context() as patch:
        patch.setattr(type(store.letters), "get", fail)
        answer = post(ann, page, does, args="[18", why="a <b>typo</b>")
        assert (answer.status, "gone" in answer.text) == (503, True)
        assert ("unknown whether the message was saved" in answer.text) == (does == "save")
        assert "a &lt;b&gt;typo&lt;/b&gt;" in answer.body
    checked = post(ann, answer, "check")
    assert (checked.status, texts_in(checked)["args"]) == (200, "[18")
    assert texts_in(checked)["kwargs"] == texts_in(page)["kwargs"]


def test_a_message_that_was_saved_after_all_is_said_to_have_changed(ann, store, monkeypatch):
    page, real = editor_of(ann), DeadLetterQueue.edit

    def fail(*args, **kwargs):
        real(*args, **kwargs)
        raise StoreUnavailable("gone")

    with monkeypatch.context() as patch:
        patch.setattr(DeadLetterQueue, "edit", fail)
        answer = post(ann, page, "save", args="[18]")
    assert (answer.status, store.letters.get(ID).args) == (503, [18])
    checked = post(ann, answer, "check")
    assert "ann (flower) changed this message now." in side(checked, "dlq-edit-diff")


def test_save_changes_the_message_and_keeps_what_it_was(ann, store):
    page = editor_of(ann)
    saved = post(ann, page, "save", kwargs='{"currency":\r\n "USD"}', why="a typo")
    assert saved.headers["Location"] == f"/dead-letters/letters/{ID}?done=edited"
    assert store.letters.get(ID).kwargs == {"currency": "USD"}
    [change] = store.edits.of_letter(ID)
    assert (change.who, change.how) == ("ann (flower)", "edit")
    [row] = store.audit.find(act="edit").rows
    assert (row.who, row.why) == ("ann (flower)", "a typo")
    assert store.operations.find() == []
    [(_, history)] = ann.get(f"/dead-letters/letters/{ID}").find("section", id="dlq-history")
    assert '+ kwargs.currency = "USD"' in history


class TestCheck:
    """The button "Check" shows what would be saved."""

    def check(self, visitor, **values):
        page = post(visitor, editor_of(visitor), "check", **values)
        assert page.status == 200
        return page

    def test_it_shows_the_change_with_its_signs_and_saves_nothing(self, ann, store):
        page = self.check(ann, args="[18]", why="because")
        assert "- args[0] = 17 + args[0] = 18" in side(page, "dlq-edit-diff")
        signs = [
            found["class"] for found, _ in page.find("span") if "diff" in found.get("class", "")
        ]
        assert signs == ["dlq-diff-old", "dlq-diff-new"]
        assert texts_in(page)["args"] == "[18]"
        assert dict(page.form(EDIT))["why"] == "because"
        assert store.letters.get(ID).args == [17]
        assert store.edits.of_letter(ID) == []
        assert store.audit.find().rows == ()

    @pytest.mark.parametrize(
        ("values", "name", "said"),
        [
            ({"args": "[17,"}, "args", "line 1 column 5"),
            ({"kwargs": '{"a": 1,\n "b" 2}'}, "kwargs", "line 2 column 6"),
            ({"args": "{}"}, "args", "It must be a JSON list"),
            ({"kwargs": "[]"}, "kwargs", "It must be a JSON object"),
            ({"headers": "{"}, "headers", "line 1 column 2"),
            ({"args": ""}, "args", "It is not JSON"),
        ],
    )  # fmt: skip
    def test_a_problem_is_under_its_field(self, ann, values, name, said):
        page = self.check(ann, **values)
        assert said in problem(page, name)
        assert [problem(page, other) for other in PARTS if other != name] == ["", ""]
        [(field, _)] = page.find("textarea", name=name)
        assert field["aria-invalid"] == "true"
        assert is_folded(page) is (name != "headers")

    def test_changed_headers_are_unfolded(self, ann):
        assert not is_folded(self.check(ann, headers='{"lang": "py", "tenant": "a"}'))
        fixed = self.check(ann, headers='{"task": "shop.other"}')
        assert not is_folded(fixed)
        assert "It cannot be saved: it changes headers.task" in side(fixed, "dlq-edit-diff")

    def test_it_can_be_pressed_again(self, ann):
        page = editor_of(ann)
        assert [post(ann, page, "check", args="[18]").status for _ in range(2)] == [200, 200]

    def test_the_change_hides_secrets(self, ann):
        page = self.check(ann, kwargs='{"currency": "EUX", "password": "hunter2"}')
        assert "+ kwargs.password = [redacted]" in side(page, "dlq-edit-diff")

    def test_a_stranger_cannot_check(self, ann):
        page = editor_of(ann)
        ann.headers.clear()
        assert post(ann, page, "check").status == 401


class TestSignature:
    """The parameters of the task beside its arguments."""

    def test_it_names_the_parameters(self, ann):
        said = side(editor_of(ann), "dlq-signature")
        assert said == "Task shop.charge Parameters: order_id, currency The arguments fit."

    def test_a_misfit_is_explained(self, ann):
        page = post(ann, editor_of(ann), "check", args="[]", kwargs='{"curency": "EUR"}')
        said = side(page, "dlq-signature")
        assert "The arguments do not fit: missing order_id, unexpected kwargs.curency." in said

    def test_a_task_whose_code_is_not_here(self, ann, store):
        sent = envelope("far", headers={"id": "far", "task": "shop.far"})
        store.letters.save([letter("far", attempt(), task="shop.far", envelope=sent)])
        said = side(editor_of(ann, "/dead-letters/letters/far/edit"), "dlq-signature")
        assert said.startswith("Task shop.far")
        assert "does not have the code of the task" in said

    def test_unreadable_arguments_are_not_compared(self, ann):
        page = post(ann, editor_of(ann), "check", args="[")
        assert "until the JSON is fixed" in side(page, "dlq-signature")

    def test_stars_and_no_defaults(self, ann, app, store):
        @app.task(name="shop.refund", base=DLQTask, shared=False, bind=True)
        def refund(self, order: int, *rest, password="hunter2", **more): ...

        headers = {"id": "r", "task": "shop.refund"}
        sent = envelope("r", headers=headers, body=b'[[1, 2, 3], {"x": 4}, {}]')
        store.letters.save([letter("r", attempt(), task="shop.refund", envelope=sent)])
        page = editor_of(ann, "/dead-letters/letters/r/edit")
        said = side(page, "dlq-signature")
        assert "Parameters: order, *rest, password, **more The arguments fit." in said


class TestOthers:
    """Another person changes the message while the editor is open."""

    @pytest.fixture
    def page(self, ann, app):
        page = editor_of(ann)
        DeadLetterQueue.of(app).edit(ID, who="bob <b>", args=[99])
        return page

    @pytest.mark.parametrize("does", ["save", "redrive"])
    def test_the_second_is_told_who_was_first_and_changes_nothing(self, ann, store, page, does):
        answer = post(ann, page, does, args="[18]")
        assert answer.status == 409
        [(_, alert)] = answer.find("p", role="alert")
        assert alert.startswith("bob <b> changed this message now. Nothing was saved.")
        assert texts_in(answer)["args"] == "[18]"
        assert store.letters.get(ID).args == [99]
        assert store.operations.find() == []
        assert post(ann, answer, does, args="[18]").status == 409

    def test_a_check_says_it_too(self, ann, page):
        said = side(post(ann, page, "check", args="[18]"), "dlq-edit-diff")
        assert "bob <b> changed this message now" in said
        assert "Open the editor again" in said

    def test_the_editor_opened_again_saves(self, ann, store, page):
        assert post(ann, editor_of(ann), "save", args="[18]").status == 303
        assert store.letters.get(ID).args == [18]

    def test_a_message_that_changed_otherwise(self, ann, store):
        page = editor_of(ann)
        form = {
            **dict(page.form(EDIT)),
            **texts_in(page),
            "args": "[18]",
            "seen": "another",
            "do": "save",
        }
        answer = ann.post(EDIT, form)
        assert (answer.status, store.edits.of_letter(ID)) == (409, [])
        assert "This message has changed since you opened the editor." in answer.text

    def test_a_letter_that_is_no_longer_dead(self, ann, store):
        page = editor_of(ann)
        store.closing.discard(Filter(ids=(ID,)), who="bob", why="x", now=T0)
        answer = post(ann, page, "save", args="[18]")
        assert (answer.status, store.edits.of_letter(ID)) == (400, [])
        assert "is discarded; only the message of a dead letter can be edited" in answer.text
        assert texts_in(answer)["args"] == "[18]"
        assert ann.get(EDIT).status == 400


class TestSaveAndRedrive:
    """One button that saves the message and sends the letter."""

    def test_it_leaves_an_operation_of_this_letter_to_a_worker(self, ann, store):
        sent = post(ann, editor_of(ann), "redrive", kwargs='{"currency": "EUR"}', why="a typo")
        [made] = store.operations.find()
        assert sent.headers["Location"] == (
            f"/dead-letters/letters/{ID}?done=edited-redriven&operation={made.id}"
        )
        assert (made.wanted.ids, made.detached, made.who) == ((ID,), True, "ann (flower)")
        assert store.letters.get(ID).kwargs == {"currency": "EUR"}
        acts = [(row.act, row.who, row.why) for row in store.audit.find().rows]
        assert acts == [("redrive", "ann (flower)", "a typo"), ("edit", "ann (flower)", "a typo")]
        assert (
            "The message was changed. A worker will send it"
            in ann.get(sent.headers["Location"]).text
        )

    @pytest.mark.parametrize("does", ["save", "redrive"])
    def test_without_a_change_nothing_is_sent(self, ann, store, does):
        answer = post(ann, editor_of(ann), does)
        assert (answer.status, store.operations.find()) == (400, [])
        assert "To send the message as it is, redrive the letter on its page." in answer.text

    def test_with_a_problem_nothing_is_saved_or_sent(self, ann, store):
        answer = post(ann, editor_of(ann), "redrive", kwargs="{</textarea><script>")
        assert (answer.status, store.operations.find()) == (400, [])
        assert texts_in(answer)["kwargs"] == "{</textarea><script>"
        assert "Nothing was saved; fix the parts that have a problem." in answer.text
        assert store.edits.of_letter(ID) == []

    def test_a_refused_redrive_leaves_the_message_saved(self, ann, store):
        form = dict(editor_of(ann).form(EDIT))
        given = {**form, **texts_in(editor_of(ann)), "args": "[18]", "do": "redrive", "canary": "5"}
        answer = ann.post(EDIT, given)
        assert answer.status == 409
        [(_, said)] = answer.find("section", id="dlq-saved")
        assert "The message was saved, but the letter was not sent" in said
        assert "A canary of 5 is more than 1 letter; make it smaller." in said
        assert answer.find("a", href=f"/dead-letters/letters/{ID}")
        assert (store.letters.get(ID).args, store.operations.find()) == ([18], [])

    def test_a_store_that_fails_in_between_is_reported(self, ann, store, monkeypatch):
        page = editor_of(ann)

        def fail(*args, **kwargs):
            raise StoreUnavailable("gone")

        monkeypatch.setattr(type(store.operations), "create", fail)
        answer = post(ann, page, "redrive", args="[18]")
        assert answer.status == 503
        assert "it is unknown whether the letter was sent" in answer.text
        assert store.letters.get(ID).args == [18]

    def test_a_letter_redriven_often_is_sent_only_with_again(self, ann, store):
        page = editor_of(ann)
        assert page.find("input", name="again") == []
        often = letter("often", attempt(), redrive_count=3)
        store.letters.save([often])
        path = "/dead-letters/letters/often/edit"
        page = editor_of(ann, path)
        assert page.find("input", name="again")
        sent = post(ann, page, "redrive", path, args="[18]", again="1")
        assert sent.status == 303
        assert store.operations.find()[0].orders.checking.max_redrives is None

    def test_a_form_is_accepted_once(self, ann, store):
        page = editor_of(ann)
        assert post(ann, page, "redrive", args="[18]").status == 303
        assert post(ann, page, "redrive", args="[18]").status == 409
        assert len(store.operations.find()) == 1


def test_another_button_is_refused(ann, store):
    answer = post(ann, editor_of(ann), "delete", args="[18]")
    assert (answer.status, store.letters.get(ID).args) == (400, [17])


def test_invisible_characters_are_escaped_in_the_editor(ann, store):
    body = json.dumps([["a\u202eb\x00c\ud800"], {}, {}]).encode()
    store.letters.save([letter("odd", envelope=envelope("odd", body=body))])
    text = texts_in(ann.get("/dead-letters/letters/odd/edit"))["args"]
    for code in ("\\u202e", "\\u0000", "\\ud800"):
        assert code in text
    assert json.loads(text) == ["a\u202eb\x00c\ud800"]


def test_a_beginning_of_an_id_opens_the_editor_of_its_letter(ann, store):
    page = editor_of(ann, "/dead-letters/letters/0d3f1/edit")
    assert post(ann, page, "save", args="[18]").status == 303
    assert store.letters.get(ID).state is State.DEAD


def test_a_text_that_is_too_long_is_refused(ann, store, monkeypatch):
    monkeypatch.setattr("celery_dlq.redrive.letter.edit.SHOWN_LIMIT", 100)
    answer = post(ann, editor_of(ann), "save", args=f'["{"x" * 100}"]')
    assert answer.status == 400
    assert problem(answer, "args") == "It has more than 100 characters; make it shorter."
    assert store.edits.of_letter(ID) == []
