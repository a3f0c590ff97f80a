"""Automatic redrives and handlers in Flower: the list, the page of one, and what it would do now."""

from urllib.parse import quote

import pytest
from support.factories import attempt, letter

from celery_dlq import AutoRedrive, Filter, Leave
from celery_dlq.errors import StoreUnavailable
from celery_dlq.model.automation import EVERY, AutoState, actor_of

AUTOS = "/dead-letters/automations"
PAGE = f"{AUTOS}/charges"
ALL = f"{AUTOS}/%2A"


@pytest.fixture
def hostile(app):
    """An automatic redrive with markup in its texts."""
    owner = "<script>alert(1)</script> \u202e"
    made = AutoRedrive("hostile", where=Filter(task="<i>"), owner=owner)
    app.conf.dlq_auto_redrive = (made,)
    return made


def status(store, name="charges"):
    return store.automations.statuses()[name]


def suspend(store, why, name="charges"):
    who = actor_of(name)
    store.automations.set_state(name, AutoState.SUSPENDED, who=who, why=why, now=store.now())


def press(visitor, page, action, **fields):
    form = [pair for pair in visitor.get(page).form(action) if pair[0] not in fields]
    return visitor.post(action, [*form, *fields.items()])


def rows(page, table):
    """The texts of the rows of a table, without its head."""
    start = page.body.index(f'id="{table}"')
    return page.body[start:].partition("</table>")[0].count("<tr>") - 1


class TestNavigation:
    def test_the_page_is_linked(self, shop, ann):
        [(found, text)] = ann.get("/dead-letters").find("a", href=AUTOS)
        assert text == "Automations"
        assert "class" not in found
        assert ann.get(AUTOS).find("a", href=AUTOS)[0][0]["aria-current"] == "page"

    def test_without_any_it_says_how_to_have_some(self, ann):
        page = ann.get(AUTOS)
        assert page.status == 200
        assert "This app has no automatic redrives and no handlers. Next: set" in page.text
        assert page.find("form") == []

    def test_every_address_has_the_url_prefix(self, shop, visit, three, lease):
        shop.automations.run(lease, lambda: lease)
        visitor = visit(basic_auth=["ann:secret"], url_prefix="/ops/")
        visitor.log_in("ann", "secret")
        paths = (AUTOS, PAGE, f"{PAGE}/dry-run")
        for path in paths:
            page = visitor.get(f"/ops{path}")
            assert page.status == 200
            ours = [
                found["href"] for found, _ in page.find("a") if "dead-l" in found.get("href", "")
            ]
            ours += [found["action"] for found, _ in page.find("form")]
            assert ours
            assert all(address.startswith("/ops/dead-letters") for address in ours)


class TestList:
    def test_each_with_its_state_owner_and_letters(self, shop, ann, store, lease, hold):
        hold("0d3f1111-aaaa", "it failed differently")
        shop.automations.run(lease, lambda: lease)
        page = ann.get(AUTOS)
        assert page.find("a", href=PAGE)[0][1] == "charges"
        for said in ("payments", "redrive", "shadow", "active", "1 done", "1 shadow"):
            assert said in page.text
        assert page.find("a", href="/dead-letters/letters?held=1")[0][1] == "1"
        assert "in 5m" in page.text
        assert rows(page, "dlq-autos") == 2

    def test_a_stopped_one_says_why_by_whom_and_since_when(self, shop, ann, store):
        suspend(store, "2 of its last 20 redrives succeeded, and password=hunter2 is wrong")
        page = ann.get(AUTOS)
        assert "it is suspended by auto:charges: 2 of its last 20 redrives succeeded" in page.text
        assert "since 2026-11-21 13:00:00 UTC (now)" in page.text
        assert "hunter2" not in page.body
        assert [found["id"] for found, _ in page.find("button", id="dlq-pause-all")]

    def test_all_are_paused_and_resumed(self, shop, ann, store):
        answer = press(ann, AUTOS, f"{ALL}/pause", why="deploying")
        assert (answer.status, answer.headers["Location"]) == (303, f"{AUTOS}?done=pause")
        stored = status(store, EVERY)
        assert (stored.state, stored.who, stored.why) == (
            AutoState.PAUSED, "ann (flower)", "deploying",
        )  # fmt: skip
        page = ann.get(f"{AUTOS}?done=pause")
        assert "letters that were not sent stay dead" in page.text
        [(_, note)] = page.find("p", id="dlq-all-stopped")
        assert "paused by ann (flower): deploying" in " ".join(note.split())
        assert page.find("button", id="dlq-pause-all") == []
        # Each may still be stopped by its own name.
        assert page.form(f"{PAGE}/pause")
        assert press(ann, AUTOS, f"{ALL}/resume").status == 303
        assert status(store, EVERY).state is AutoState.ACTIVE
        assert [row.act for row in store.audit.find().rows] == ["resume", "pause"]
        assert {row.who for row in store.audit.find().rows} == {"ann (flower)"}

    def test_one_is_paused_from_the_list(self, shop, ann, store):
        assert press(ann, AUTOS, f"{PAGE}/pause").headers["Location"] == f"{PAGE}?done=pause"
        assert status(store).state is AutoState.PAUSED

    def test_handlers_are_listed_and_have_pages(self, shop, ann, store):
        shop.handler(where=Filter(task="charge"), name="in_euros")(lambda letter: Leave())
        page = ann.get(AUTOS)
        assert rows(page, "dlq-autos") == 3
        assert page.find("a", href=f"{AUTOS}/in_euros")[0][1] == "in_euros"
        page = ann.get(f"{AUTOS}/in_euros")
        assert "Handler in_euros" in page.text
        assert "It has had no letters yet." in page.text
        assert page.find("a", id="dlq-try") == []
        assert page.find("button", id="dlq-run") == []
        assert press(ann, f"{AUTOS}/in_euros", f"{AUTOS}/in_euros/pause").status == 303
        assert status(store, "in_euros").state is AutoState.PAUSED
        assert ann.get(f"{AUTOS}/in_euros/dry-run").status == 404

    def test_an_unknown_parameter(self, shop, ann):
        assert ann.get(f"{AUTOS}?state=paused").status == 400


class TestPage:
    def test_one_in_words_with_its_letters(self, shop, ann, store, lease):
        shop.automations.run(lease, lambda: lease)
        latest = store.automations.find(name="charges").rows[0]
        page = ann.get(f"{PAGE}?done=resume")
        for said in (
            "task=shop.charge", "15m after the failure", "3 times, each wait 2 times longer",
            "every 5m", "below 50% successes of its last 20 redrives", "payments", "Next look",
            "0 open letters", "It was resumed.",
        ):  # fmt: skip
            assert said in page.text
        assert rows(page, "dlq-latest") == 2
        assert page.find("a", href=f"/dead-letters/letters/{latest.task_id}")
        assert page.find("a", href=f"/dead-letters/operations/{latest.operation}")

    def test_one_without_letters(self, shop, ann):
        assert "It has had no letters yet." in ann.get(PAGE).text

    def test_pause_resume_and_run_now(self, shop, ann, store, lease):
        shop.automations.run(lease, lambda: lease)
        assert press(ann, PAGE, f"{PAGE}/run").headers["Location"] == f"{PAGE}?done=run"
        assert status(store).looked_at is None
        assert press(ann, PAGE, f"{PAGE}/pause", why="deploying").status == 303
        page = ann.get(PAGE)
        [(_, note)] = page.find("p", id="dlq-stopped")
        assert "It does not run: it is paused by ann (flower): deploying" in " ".join(note.split())
        assert page.find("button", id="dlq-run") == []
        assert press(ann, PAGE, f"{PAGE}/resume").status == 303
        assert status(store).state is AutoState.ACTIVE
        assert ann.get(PAGE).find("p", id="dlq-stopped") == []

    def test_one_that_was_stopped_first_is_not_run(self, shop, ann, store):
        form = ann.get(PAGE).form(f"{PAGE}/run")
        suspend(store, "password=hunter2 is wrong")
        answer = ann.post(f"{PAGE}/run", form)
        assert answer.status == 409
        assert "does not run: it is suspended by auto:charges" in answer.text
        assert "Resume it first." in answer.text
        assert "hunter2" not in answer.body

    def test_one_in_shadow_mode_is_not_active(self, shop, ann):
        [(found, word)] = ann.get(f"{AUTOS}/trial").find("span", id="dlq-state")
        assert (found["class"], word) == ("dlq-state dlq-state-shadow", "shadow")
        assert ann.get(AUTOS).find("span", class_="dlq-state dlq-state-shadow")
        [(_, word)] = ann.get(PAGE).find("span", id="dlq-state")
        assert word == "active"

    def test_a_form_is_accepted_once_and_for_its_own_automatic_redrive(self, shop, ann, store):
        form = ann.get(PAGE).form(f"{PAGE}/pause")
        assert len(ann.get(PAGE).find("input", name="why")) == 1
        assert ann.post(f"{AUTOS}/trial/pause", form).status == 409
        assert ann.post(f"{PAGE}/pause", form).status == 303
        assert ann.post(f"{PAGE}/pause", form).status == 409
        assert ann.post(f"{PAGE}/resume", form).status == 409
        assert list(store.automations.statuses()) == ["charges"]

    def test_without_a_token_nothing_is_changed(self, shop, ann, store):
        form = [pair for pair in ann.get(PAGE).form(f"{PAGE}/pause") if pair[0] != "_xsrf"]
        assert ann.post(f"{PAGE}/pause", form).status == 403
        assert store.automations.statuses() == {}

    @pytest.mark.parametrize("options", [{}, {"basic_auth": ["ann:secret"], "read_only": True}])
    def test_a_flower_that_makes_no_changes_only_shows(self, shop, visit, three, store, options):
        visitor = visit(**options)
        visitor.log_in("ann", "secret")
        for path in (AUTOS, PAGE, f"{PAGE}/dry-run"):
            page = visitor.get(path)
            assert page.status == 200
            assert page.find("form") == []
            assert page.find("p", id="dlq-locked")
        for path in (f"{PAGE}/pause", f"{PAGE}/run", f"{ALL}/pause"):
            assert visitor.post(path, {}).status == 403
        assert store.automations.statuses() == {}

    @pytest.mark.parametrize("path", ["/charge", "/charge/dry-run", "/%00", "/%2A"])
    def test_an_unknown_name(self, shop, ann, path):
        answer = ann.get(f"{AUTOS}{path}")
        assert answer.status == 404
        assert "is not an automation of this app" in answer.text

    def test_an_unknown_act(self, shop, ann, store):
        form = ann.get(PAGE).form(f"{PAGE}/pause")
        assert ann.post(f"{PAGE}/burn", form).status == 404
        assert store.automations.statuses() == {}

    def test_names_and_reasons_stay_text(self, hostile, ann, store):
        name = hostile.name
        store.automations.set_state(
            name, AutoState.PAUSED, who="<img src=x>", why="{{ 1 }}<br>", now=store.now()
        )
        page = f"{AUTOS}/{quote(name, safe='')}"
        for path in (AUTOS, page, f"{page}/dry-run"):
            found = ann.get(path)
            assert found.status == 200
            assert not {"b", "i", "br"} & {tag for tag, _, _ in found.elements}
            assert "<script>alert" not in found.body
            assert "<img src=x" not in found.body
            assert "\u202e" not in found.text
        assert press(ann, page, f"{page}/resume").status == 303
        assert status(store, name).state is AutoState.ACTIVE


class TestDryRun:
    def test_it_shows_what_would_be_sent_and_changes_nothing(self, shop, ann, store):
        store.letters.save([letter("fresh", attempt(minutes=59))])
        page = ann.get(f"{PAGE}/dry-run")
        assert "It would send 2 letters. Nothing was sent or changed." in page.text
        assert page.find("a", href="/dead-letters/letters/0d3f1111-aaaa")
        [(_, text)] = page.find("section", id="dlq-would-send")
        assert "bad currency" in text
        assert page.find("a", href="/dead-letters/letters/fresh") == []
        assert store.automations.statuses() == {}
        assert store.automations.find().rows == ()

    def test_it_says_what_is_in_the_way_and_why_letters_wait(self, shop, ann):
        shop.pause_auto(who="bob", why="holidays")
        page = ann.get(f"{AUTOS}/trial/dry-run")
        assert (
            "A worker would not do it now: all automations are paused by bob: holidays."
            in page.text
        )
        assert "It would record, and not send, 2 letters" in page.text

    def test_it_shows_what_would_be_held(self, shop, ann, store):
        store.letters.save([letter("often", attempt(), redrive_count=3)])
        page = ann.get(f"{PAGE}/dry-run")
        [(_, text)] = page.find("section", id="dlq-would-hold")
        assert "often" in text
        assert "it was redriven 3 times and failed again" in text


@pytest.mark.parametrize("path", [AUTOS, PAGE, f"{PAGE}/dry-run"])
def test_a_store_that_is_away_is_reported(shop, ann, store, monkeypatch, path):
    def fail(*_args, **_kwargs):
        raise StoreUnavailable

    monkeypatch.setattr(type(store.automations), "statuses", fail)
    answer = ann.get(path)
    assert answer.status == 503
    assert answer.find("section", role="alert")
