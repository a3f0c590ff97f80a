"""The overview, the first page of the tab."""

from dataclasses import replace
from datetime import timedelta

import pytest
from support.factories import T0, attempt, letter
from support.stores.losses import lost_letter, trouble

from celery_dlq.api.recorder import Recorder
from celery_dlq.model.group import Mark, Resolve
from celery_dlq.model.operation import OperationState
from celery_dlq.model.states import State
from celery_dlq.recorder.files import Standing
from celery_dlq.store.base import Facts, Filter
from celery_dlq.store.database import clock
from celery_dlq.view.groups import worklist

NOW = T0 + timedelta(hours=1)

OVERVIEW = "/dead-letters"


def test_the_overview_shows_the_numbers(ann):
    page = ann.get(OVERVIEW)
    assert page.status == 200
    [(_, depth)] = page.find("section", id="dlq-depth")
    assert depth.split()[:3] == ["Open", "letters", "3"]
    assert "The oldest failed 50m ago" in " ".join(depth.split())
    [(_, arrivals)] = page.find("section", id="dlq-arrivals")
    assert "3 failures, at most 3 per hour" in arrivals
    assert ("Overview", OVERVIEW) in [
        (name, found["href"]) for found, name in page.find("a", **{"aria-current": "page"})
    ]


def test_it_says_how_old_it_is_and_refreshes_itself(ann):
    page = ann.get(OVERVIEW)
    [(_, said)] = page.find("p", id="dlq-as-of")
    assert said == "As of 21 Nov 13:00:00 UTC"
    [(live, inside)] = page.find("div", id="dlq-live")
    assert (live["data-refresh"], "What is failing" in inside) == ("10", True)


def test_bars_link_to_their_letters(ann, store):
    store.letters.save([letter("old", attempt(minutes=-20_000))])
    store.letters.save([lost_letter("gone", T0)])
    page = ann.get(OVERVIEW)
    for address, name in (
        ("/dead-letters/letters?reason=terminal", "terminal"),
        ("/dead-letters/letters?exception=ValueError", "ValueError"),
        ("/dead-letters/letters?exception=requests.exceptions.Timeout", "Timeout"),
        ("/dead-letters/letters?task=shop.charge", "charge"),
        ("/dead-letters/letters?since=3600s&until=60s", "under 1h"),
        ("/dead-letters/letters?until=604800s", "over 7d"),
    ):
        assert page.find("a", href=address)[0][1] == name
        assert ann.get(address).status == 200


def test_an_age_links_to_the_letters_that_it_counts(ann, store):
    store.letters.save([letter("old", attempt(minutes=-20_000))])
    [(found, _)] = [
        item
        for item in ann.get(OVERVIEW).find("a")
        if item[1] == "under 1h" and "since" in item[0]["href"]
    ]
    assert "3 letters match" in ann.get(found["href"]).text


def test_only_ages_with_letters_are_shown(ann, store):
    store.letters.save([letter("older", attempt(minutes=-600))])
    [(_, ages)] = ann.get(OVERVIEW).find("section", id="dlq-ages")
    assert [name for name in ("1m", "1h", "1d", "7d") if name in ages] == ["1h", "1d"]


def test_a_breakdown_with_one_value_is_left_out(ann):
    page = ann.get(OVERVIEW)
    assert page.find("section", id="dlq-reasons") == []
    assert page.find("section", id="dlq-states") == []
    assert page.find("section", id="dlq-tasks")


def test_charts_are_inline_images_with_names(ann, store):
    store.closing.discard(Filter(ids=("77e1",)), who="ann", why="", now=T0)
    page = ann.get(OVERVIEW)
    names = [found["aria-label"] for found, _ in page.find("svg", role="img")]
    assert "Open letters by state: dead 2" in names
    assert any(name.startswith("Arrivals in the last 24 hours: 3 in total") for name in names)
    assert any("21 Nov 12:00 to 13:00 UTC: 3 letters" in text for _, text in page.find("title"))


def test_regressed_groups_come_first_then_new_ones_then_the_largest(ann, store):
    old = [letter(f"old{n}", attempt(minutes=-3_000), fingerprint="0123") for n in range(5)]
    store.letters.save(old)
    store.groups.triage("9c1e0000deadbeef", Resolve(), who="ann", now=T0 + timedelta(minutes=40))
    store.groups.triage("aaaa000000000000", Resolve(), who="ann", now=T0 + timedelta(minutes=40))
    store.letters.save([letter("back", attempt(minutes=45))])
    store.letters.save([letter("new", fingerprint="4567")])
    page = ann.get(OVERVIEW)
    links = [found["href"] for found, _ in page.find("a", **{"class": "dlq-cause"})]
    causes = ["9c1e0000deadbeef", "4567", "0123"]
    assert links == [f"/dead-letters/groups/{cause}" for cause in causes]
    numbers = {text.split()[0]: text for _, text in page.find("section") if "groups" in text}
    assert numbers["Regressed"].split() == ["Regressed", "groups", "1"]


def test_arrivals_are_compared_with_the_usual_rate(ann, store):
    for number in range(90):
        store.letters.save([letter(f"{number}", attempt(minutes=-60 * 53 + number))])
    page = ann.get(OVERVIEW)
    assert "usually 3" in page.text
    assert not page.find("section", **{"class": "dlq-card dlq-figure dlq-figure-bad"})


def test_many_arrivals_stand_out(ann, store):
    store.letters.save([letter("before", attempt(minutes=-2_000))])
    store.letters.save([letter(f"now{n}", attempt(minutes=59)) for n in range(9)])
    found = ann.get(OVERVIEW).find("section", **{"class": "dlq-card dlq-figure dlq-figure-bad"})
    assert [" ".join(text.split()) for _, text in found] == [
        "Arrived in the last hour 12 usually less than 1"
    ]


def test_an_act_in_a_row_leads_back_to_the_overview(ann, store):
    page = "/dead-letters/groups/9c1e0000deadbeef"
    done = ann.post(f"{page}/ignore", [*ann.get(OVERVIEW).form(f"{page}/ignore"), ("until", "")])
    assert done.headers["Location"] == f"{OVERVIEW}?done=ignore"
    after = ann.get(done.headers["Location"])
    assert "The group is ignored" in after.find("p", id="dlq-done")[0][1]
    assert [text for _, text in after.find("a", **{"class": "dlq-cause"})] == ["Timeout in mail"]


def test_answers_are_cached_until_the_next_act(ann, store, site_of):
    assert "charge" in ann.get(OVERVIEW).text
    store.closing.discard(Filter(), who="bob", why="", now=T0)
    assert "The oldest failed" in ann.get(OVERVIEW).text
    site_of(ann).snapshots.forget()
    page = ann.get(OVERVIEW)
    assert page.text.count("There are no open letters.") == 1
    assert page.find("section", id="dlq-running") == []


def test_redrives_under_way_are_shown(ann, store, operation):
    store.operations.create(operation())
    store.operations.create(operation("ended"))
    store.operations.move("ended", OperationState.CANCELLED, who="ann", now=T0)
    [(_, running)] = ann.get(OVERVIEW).find("section", id="dlq-running")
    assert "0a1b2c3d4e5f" in running
    assert "ended" not in running


class TestKilledWorkers:
    @pytest.fixture(autouse=True)
    def _clock(self, monkeypatch):
        monkeypatch.setattr(clock, "now", lambda _connection: NOW)

    def test_without_losses_nothing_is_said(self, ann):
        assert ann.get(OVERVIEW).find("section", id="dlq-lost") == []

    def test_lost_letters_link_to_their_list(self, ann, store):
        store.letters.save([lost_letter("gone", NOW - timedelta(hours=2))])
        page = ann.get(OVERVIEW)
        [(_, lost)] = page.find("section", id="dlq-lost")
        assert "1 open letter, 1 in the last 24 h" in " ".join(lost.split())
        [(_, name)] = page.find(
            "a", href="/dead-letters/letters?reason=lost", **{"class": "dlq-more"}
        )
        assert name == "lost letters"
        assert "1 letter matches" in ann.get("/dead-letters/letters?reason=lost").text

    def test_reports_of_workers_on_all_machines(self, ann, store):
        store.recorder_reports.note(trouble(NOW))
        [(_, lost)] = ann.get(OVERVIEW).find("section", id="dlq-lost")
        lines = " ".join(lost.split())
        assert "stuck celery@host-b on host-b since 45m ago" in lines
        assert "celery@host-b on host-b: 2 messages since 5m ago" in lines
        assert "run without a copy: [Errno 28] No space left on device" in lines

    def test_of_many_reports_the_worst_are_shown(self, ann, store):
        [stuck, *_] = trouble(NOW)
        store.recorder_reports.note([replace(stuck, about=f"host-{n}-ab") for n in range(25)])
        [(_, lost)] = ann.get(OVERVIEW).find("section", id="dlq-lost")
        assert lost.count("1.rec is not readable") == 20
        assert "5 more reports" in lost

    def test_messages_in_the_files_of_flowers_machine(self, ann, monkeypatch):
        here = Standing(running=1, unrecovered=3, forgotten=3, oldest_at=NOW - timedelta(hours=1))
        monkeypatch.setattr(Recorder, "standing", lambda _recorder: here)
        [(_, lost)] = ann.get(OVERVIEW).find("section", id="dlq-lost")
        assert "3 messages" in lost
        assert "(1h ago)" in lost


def test_an_empty_store(visit, store):
    page = visit().get(OVERVIEW)
    assert page.status == 200
    [(_, arrivals)] = page.find("section", id="dlq-arrivals")
    assert "Arrivals, last 24 hours none" in arrivals
    assert page.find("details", **{"class": "dlq-values"}) == []


def test_the_latest_letters(ann):
    page = ann.get(OVERVIEW)
    [(_, latest)] = page.find("section", id="dlq-recent")
    assert latest.index("77e1") < latest.index("0d3f2222") < latest.index("0d3f1111")
    assert page.find("a", href="/dead-letters/letters/77e1")


@pytest.mark.parametrize("state", [State.DEAD, State.DISCARDED])
def test_states_link_to_their_letters(ann, store, state):
    store.closing.discard(Filter(ids=("77e1",)), who="ann", why="", now=T0)
    assert ann.get(OVERVIEW).find("a", href=f"/dead-letters/letters?state={state.value}")


def test_hostile_letters_stay_text(ann, store):
    evil = "<script>alert(1)</script>\u202e\x00"
    store.letters.save(
        [letter("evil", exception_type=evil, task=evil, message=evil, fingerprint="ee")]
    )
    page = ann.get(OVERVIEW)
    assert "<script>alert" not in page.body
    assert "\u202e" not in page.body
    assert page.status == 200


def test_what_a_round_of_retention_has_left_is_shown(ann, round_of_retention):
    [(_, kept)] = ann.get(OVERVIEW).find("section", id="dlq-kept")
    said = " ".join(kept.split())
    assert said.startswith("Retention and archive")
    assert "Closed1 letter, " in said
    assert "Expire in a week0 letters" in said
    assert "under 30d1, " in said
    assert "Archive" not in said


def test_before_the_first_round_there_is_no_such_section(ann):
    assert ann.get(OVERVIEW).find("section", id="dlq-kept") == []


def test_the_archive_is_shown_with_its_last_check(ann, store):
    facts = Facts(letters=3, size=2_500, sha256="f" * 64, first_failed_at=T0, last_failed_at=T0)
    store.archiving.adopt("20261121T120000000000-00000001", facts, T0)
    [(_, kept)] = ann.get(OVERVIEW).find("section", id="dlq-kept")
    assert "3 letters, 2.5 kB in 1 segment" in kept
    assert "never" in kept


def test_a_regressed_group_comes_before_more_new_ones_than_are_counted(ann, store, monkeypatch):
    monkeypatch.setattr("celery_dlq.view.groups.MOST_MARKED", 5)
    new = [
        letter(f"{number}.{place}", attempt(minutes=50), fingerprint=f"{number:016x}")
        for number in range(9) for place in range(2)
    ]  # fmt: skip
    store.letters.save([*new, letter("back", attempt(minutes=50), fingerprint="back")])
    store.groups.triage("back", Resolve(), who="ann", now=T0 + timedelta(minutes=51))
    store.letters.save([letter("again", attempt(minutes=55), fingerprint="back")])
    found = worklist(store, NOW, limit=3)
    assert found.groups[0].fingerprint == "back"
    assert found.marked == {Mark.REGRESSED: 1, Mark.NEW: 5}
