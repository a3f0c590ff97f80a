"""Redrives in Flower: the list, the page of one, and its buttons."""

from dataclasses import replace
from datetime import timedelta

import pytest
from support.factories import T0

from celery_dlq.flower.words import phases, state_kind
from celery_dlq.model.letter import Outcome
from celery_dlq.model.operation import Counts, OperationState, Orders, Pacing
from celery_dlq.store.base import Filter
from celery_dlq.view import times

OPERATIONS = "/dead-letters/operations"
ID = "0a1b2c3d4e5f"
PAGE = f"{OPERATIONS}/{ID}"


@pytest.fixture
def planned(store, operation, three):
    """A planned redrive of three letters."""
    orders = Orders(pacing=Pacing(rate=50.0, canary=2))
    store.operations.create(operation(detached=True, orders=orders))
    return ID


@pytest.fixture
def running(store, planned):
    """A redrive with one letter sent, one skipped, and one that failed again."""
    begun = store.operations.move(planned, OperationState.RUNNING, who="ann", now=T0)
    until = T0 + timedelta(days=9)
    held = store.claims.take(begun, token="t", lease_until=until, limit=3, now=T0)
    first, second, third = (item.task_id for item in held.letters)
    store.claims.confirm(planned, "t", {first: "", second: ""}, now=T0)
    store.claims.skip(planned, "t", {third: "no <b>queue</b>"}, now=T0)
    back = store.letters.get(second)
    run = replace(back.attempts[-1], redrive=1, failed_at=T0 + timedelta(minutes=59))
    store.letters.save([back.with_(attempts=(run,), last_failed_at=run.failed_at, redrive_count=1)])
    return {"sent": first, "failed": second, "skipped": third}


@pytest.fixture
def charted(monkeypatch):
    """Redrives of few letters have charts, too."""
    monkeypatch.setattr("celery_dlq.flower.resources.operations._CHARTED", 0)


#: The others of 40 letters, before and after a canary of five.
WAIT, UNSENT, PASSED = "35 wait for the canary", "35 not sent", "all 5 succeeded"


@pytest.mark.parametrize(
    ("state", "counts", "said", "kinds"),
    [
        ("planned", {}, ["0 of 5 sent: not sent yet", WAIT], "sent left"),
        (
            "running", {"sent": 2, "succeeded": 1},
            ["3 of 5 sent: 1 succeeded, 2 awaited", WAIT], "sent left",
        ),
        (
            "running", {"succeeded": 4, "failed": 1},
            ["5 of 5 sent: 4 succeeded, 1 failed again", WAIT], "failed left",
        ),
        (
            "aborted", {"succeeded": 4, "failed": 1},
            ["5 of 5 sent: 4 succeeded, 1 failed again", UNSENT], "failed left",
        ),
        ("running", {"succeeded": 5}, [PASSED, "0 of 35 sent"], "succeeded sent"),
        ("running", {"succeeded": 9, "sent": 6}, [PASSED, "10 of 35 sent"], "succeeded sent"),
        ("aborted", {"succeeded": 9, "failed": 6}, [PASSED, "10 of 35 sent"], "succeeded failed"),
        ("done", {"succeeded": 40}, [PASSED, "35 of 35 sent"], "succeeded succeeded"),
        ("done", {"planned": 5, "succeeded": 5}, [PASSED], "succeeded"),
        ("done", {"skipped": 40}, ["0 of 5 sent: none sent", UNSENT], "failed left"),
    ],
)  # fmt: skip
def test_the_canary_is_a_phase(operation, state, counts, said, kinds):
    orders = Orders(pacing=Pacing(canary=5))
    found = operation(
        state=OperationState(state), counts=Counts(**{"planned": 40, **counts}), orders=orders
    )
    names = ["Canary", "The others"]
    assert phases(found) == [*zip(names, said, kinds.split(), strict=False)]


def test_without_a_canary_there_are_no_phases(operation):
    assert phases(operation(counts=Counts(planned=40))) == []


@pytest.mark.parametrize(
    ("counts", "kind"),
    [
        (Counts(planned=3, succeeded=3), "done"),
        (Counts(planned=3, failed=3), "failed"),
        (Counts(planned=3, succeeded=2, failed=1), "partly"),
        (Counts(planned=3, skipped=3), "partly"),
        (Counts(planned=3, succeeded=2, sent=1), "sent"),
    ],
)
def test_only_an_operation_whose_letters_all_succeeded_is_a_green_done(operation, counts, kind):
    assert state_kind(operation(state=OperationState.DONE, counts=counts)) == kind


def state(store):
    return store.operations.get(ID).state


def act(visitor, name):
    action = f"{PAGE}/{name}"
    return visitor.post(action, visitor.get(PAGE).form(action))


class TestList:
    def test_the_progress_of_each_is_shown(self, ann, running, store):
        page = ann.get(OPERATIONS)
        for said in (
            ID,
            "running",
            "1 operation, newest first.",
            "1 failed again, 1 awaited, 1 skipped",
        ):
            assert said in page.text
        [(chart, _)] = page.find("svg", role="img")
        assert chart["aria-label"] == "Letters: failed again 1, awaited 1, skipped 1"

    def test_states_are_chosen(self, ann, planned):
        assert ID in ann.get(f"{OPERATIONS}?state=planned").text
        page = ann.get(f"{OPERATIONS}?state=done&state=aborted")
        assert ID not in page.text
        assert "No operations match." in page.text

    def test_running_operations_refresh_and_ended_ones_do_not(self, ann, planned, store, site_of):
        [(live, _)] = ann.get(OPERATIONS).find("div", id="dlq-live")
        assert live["data-refresh"] == "3"
        store.operations.move(ID, OperationState.CANCELLED, who="ann", now=T0)
        site_of(ann).snapshots.forget()
        [(live, _)] = ann.get(OPERATIONS).find("div", id="dlq-live")
        assert "data-refresh" not in live

    @pytest.mark.parametrize(
        ("query", "said"),
        [
            (
                "state=gone",
                "'gone' is not a state; did you mean 'done'? there are planned, running",
            ),
            ("task=x", "'task' is not a filter; there is state."),
        ],
    )
    def test_an_invalid_filter(self, ann, query, said):
        answer = ann.get(f"{OPERATIONS}?{query}")
        assert answer.status == 400
        assert said in answer.text

    def test_none(self, ann):
        assert "There are no operations yet." in ann.get(OPERATIONS).text


class TestPage:
    def test_one_in_full(self, ann, running):
        page = ann.get(PAGE)
        for said in (
            "Redrive of 3 letters", "2 of 3 sent", "failed again 1", "awaited 1", "skipped 1",
            "rate50/s", "canary2", "a worker", "no <b>queue</b>",
            "Canary 2 of 2 sent: 1 failed again, 1 awaited", "The others 1 wait for the canary",
        ):  # fmt: skip
            assert said in page.text
        assert page.find("a", href=f"/dead-letters/letters/{running['failed']}")
        assert page.find("a", href=f"/dead-letters/letters/{running['sent']}") == []

    def test_its_letters_are_said_in_a_sentence_and_linked(self, ann, store, operation, running):
        page = ann.get(PAGE)
        [(_, said)] = page.find("p", id="dlq-wanted")
        assert "asked for open letters that failed before 2027-11-21 12:00:00 UTC. " in said
        [(link, _)] = [found for found in page.find("a") if found[1] == "Letters that it has taken"]
        taken = ann.get(link["href"])
        ids = {found["value"] for found, _ in taken.find("input", name="id")}
        assert ids == set(running.values())

    def test_few_letters_have_no_charts(self, ann, running):
        assert ann.get(PAGE).find("div", id="dlq-pace") == []

    def test_it_shows_how_it_went_over_time(self, ann, charted, running, store, site_of):
        page = ann.get(PAGE)
        said = [chart["aria-label"] for chart, _ in page.find("svg", role="img")][1:]
        assert said == [
            "failed again: 1 in total, at most 1 (21 Nov 12:58 to 13:00 UTC)",
        ]
        ran = Outcome(task_id=running["sent"], redrive=1, succeeded_at=T0, worker="w")
        store.letters.record_outcomes([ran])
        store.operations.move(ID, OperationState.CANCELLED, who="ann", now=T0)
        site_of(ann).snapshots.forget()
        page = ann.get(PAGE)
        said = [chart["aria-label"] for chart, _ in page.find("svg", role="img")][1:]
        # It ended at once, and its last letter failed 59 minutes later.
        assert said[0] == "succeeded: 1 in total, at most 1 (21 Nov 12:00 to 12:01 UTC)"
        assert said[1] == "failed again: 1 in total, at most 1 (21 Nov 12:59 to 13:00 UTC)"

    @pytest.mark.parametrize("behind_s", [0, 1.2, 3])
    def test_a_clock_that_is_behind_does_not_matter(
        self, ann, charted, running, store, monkeypatch, behind_s
    ):
        ran = Outcome(task_id=running["sent"], redrive=1, succeeded_at=T0, worker="w")
        store.letters.record_outcomes([ran])
        monkeypatch.setattr(times, "utc_now", lambda: T0 - timedelta(seconds=behind_s))
        page = ann.get(PAGE)
        assert page.status == 200
        # The columns of a short redrive are told apart by the second.
        [(chart, _)] = [
            one for one in page.find("svg", role="img") if "succeeded:" in one[0]["aria-label"]
        ]
        assert "(21 Nov 12:00:00 to 12:00:01 UTC)" in chart["aria-label"]
        [(_, axis)] = page.find("p", class_="dlq-axis")
        assert axis.startswith("21 Nov 12:00:00 UTC")

    def test_before_it_has_begun_nothing_went(self, ann, planned):
        assert ann.get(PAGE).find("div", id="dlq-pace") == []

    def test_of_a_group_it_leads_to_the_group(self, ann, store, operation, three):
        store.operations.create(operation("77", wanted=Filter(group="aaaa000000000000")))
        assert ann.get(f"{OPERATIONS}/77").find("a", href="/dead-letters/groups/aaaa000000000000")
        assert "in the group aaaa000000000000" in ann.get(OPERATIONS).text

    def test_the_time_that_is_left_is_estimated_while_it_runs(
        self, ann, store, operation, three, site_of
    ):
        store.operations.create(operation("77", counts=Counts(planned=12)))
        begun = store.operations.move("77", OperationState.RUNNING, who="ann", now=T0)
        assert "about" not in ann.get(f"{OPERATIONS}/77").find("section", id="dlq-progress")[0][1]
        until = T0 + timedelta(days=9)
        held = store.claims.take(begun, token="t", lease_until=until, limit=3, now=T0)
        ids = [item.task_id for item in held.letters]
        store.claims.confirm("77", "t", dict.fromkeys(ids, ""), now=T0)
        site_of(ann).snapshots.forget()
        # Three letters in the hour since it began; nine are left.
        [(_, progress)] = ann.get(f"{OPERATIONS}/77").find("section", id="dlq-progress")
        assert "3/h, about 3h left" in progress
        store.operations.move("77", OperationState.PAUSED, who="ann", now=T0)
        site_of(ann).snapshots.forget()
        [(_, progress)] = ann.get(f"{OPERATIONS}/77").find("section", id="dlq-progress")
        assert "about" not in progress

    def test_letters_by_state(self, ann, running):
        page = ann.get(f"{PAGE}?state=sent")
        assert page.find("a", href=f"/dead-letters/letters/{running['sent']}")
        assert page.find("a", href=f"/dead-letters/letters/{running['failed']}") == []

    def test_pages_follow_each_other(self, ann, running, monkeypatch):
        monkeypatch.setattr("celery_dlq.flower.resources.operations._LETTERS", 1)
        page = ann.get(PAGE)
        [(following, _)] = page.find("a", rel="next")
        second = ann.get(following["href"])
        assert second.find("a", rel="next") == []
        shown = [bool(page.find("a", href=f"/dead-letters/letters/{running['failed']}"))]
        shown += [bool(second.find("a", href=f"/dead-letters/letters/{running['failed']}"))]
        assert sorted(shown) == [False, True]

    def test_a_prefix_redirects_to_the_full_id(self, ann, planned):
        assert ann.get(f"{OPERATIONS}/0a1b").headers["Location"] == PAGE

    def test_an_ambiguous_prefix_does_not(self, ann, planned, store, operation):
        store.operations.create(operation("0a1b99999999"))
        assert ann.get(f"{OPERATIONS}/0a1b").status == 400

    @pytest.mark.parametrize("name", ["77", "%00", "x" * 3_000])
    def test_an_unknown_id(self, ann, planned, name):
        assert ann.get(f"{OPERATIONS}/{name}").status == 404

    def test_the_cause_of_a_stop_is_shown(self, ann, planned, store):
        store.operations.move(planned, OperationState.RUNNING, who="ann", now=T0)
        cause = "<i>10</i> letters in a row came back"
        store.operations.move(planned, OperationState.ABORTED, who="ann", cause=cause, now=T0)
        page = ann.get(PAGE)
        assert cause in page.find("p", id="dlq-cause")[0][1]
        assert page.find("button", id="dlq-pause") == []


class TestActs:
    def test_pause_resume_cancel(self, ann, planned, store):
        form = {**dict(ann.get(PAGE).form(f"{PAGE}/pause")), "why": "lunch"}
        assert ann.post(f"{PAGE}/pause", form).headers["Location"] == f"{PAGE}?done=pause"
        assert store.audit.find().rows[0].why == "lunch"
        assert state(store) is OperationState.PAUSED
        page = ann.get(f"{PAGE}?done=pause")
        assert "stops after the current batch" in page.text
        assert page.find("button", id="dlq-pause") == []
        assert act(ann, "resume").status == 303
        assert state(store) is OperationState.RUNNING
        assert store.operations.get(ID).detached
        assert act(ann, "cancel").status == 303
        assert state(store) is OperationState.CANCELLED
        assert [row.who for row in store.audit.find().rows][:3] == ["ann (flower)"] * 3
        assert ann.get(PAGE).find("section", **{"aria-label": "Actions"}) == []

    def test_an_operation_that_ended_first_is_a_conflict(self, ann, planned, store):
        form = ann.get(PAGE).form(f"{PAGE}/pause")
        store.operations.move(planned, OperationState.CANCELLED, who="bob", now=T0)
        answer = ann.post(f"{PAGE}/pause", form)
        assert answer.status == 409
        assert state(store) is OperationState.CANCELLED

    def test_a_form_is_accepted_once(self, ann, planned, store):
        form = ann.get(PAGE).form(f"{PAGE}/pause")
        assert ann.post(f"{PAGE}/pause", form).status == 303
        store.operations.move(planned, OperationState.RUNNING, who="bob", now=T0)
        assert ann.post(f"{PAGE}/pause", form).status == 409
        assert ann.post(f"{PAGE}/cancel", form).status == 409
        assert state(store) is OperationState.RUNNING

    def test_an_unknown_act(self, ann, planned):
        form = ann.get(PAGE).form(f"{PAGE}/pause")
        assert ann.post(f"{PAGE}/burn", form).status == 404

    def test_without_a_token_nothing_is_changed(self, ann, planned, store):
        form = [pair for pair in ann.get(PAGE).form(f"{PAGE}/pause") if pair[0] != "_xsrf"]
        assert ann.post(f"{PAGE}/pause", form).status == 403
        assert state(store) is OperationState.PLANNED

    def test_without_authentication_it_can_be_read_only(self, visit, planned, store):
        visitor = visit()
        assert visitor.get(PAGE).find("button", id="dlq-pause") == []
        assert visitor.post(f"{PAGE}/pause", {}).status == 403
        assert state(store) is OperationState.PLANNED
