"""Groups in Flower: the list, the page of one, and decisions about it."""

from datetime import timedelta
from urllib.parse import quote

import pytest
from support.factories import T0, attempt, letter, operation
from support.stores import redriving

from celery_dlq import Escalate, Ticket
from celery_dlq.flower.http import request
from celery_dlq.model.fingerprint import Grounds
from celery_dlq.model.group import Annotate, Assign, GroupStatus, Ignore, Reopen, Resolve
from celery_dlq.model.operation import OperationState, Orders
from celery_dlq.model.states import State
from celery_dlq.store.base import Filter
from celery_dlq.store.letters import counting

GROUPS = "/dead-letters/groups"
CHARGE = "9c1e0000deadbeef"
PAGE = f"{GROUPS}/{CHARGE}"
NOW = T0 + timedelta(hours=1)


@pytest.fixture
def charge(store):
    """Reads the group of the letters about ``charge``."""
    return lambda: store.groups.get(CHARGE, now=NOW)


@pytest.fixture
def decide(store):
    """Decides about the group of ``charge``, half an hour after its last letter."""

    def decide(act):
        store.groups.triage(CHARGE, act, who="bob", now=T0 + timedelta(minutes=50))

    return decide


def act(visitor, name, page=PAGE, **fields):
    """Send a form of the group's page."""
    action = f"{page}/{name}"
    form = [pair for pair in visitor.get(page).form(action) if pair[0] not in fields]
    return visitor.post(action, [*form, *fields.items()])


def listed(visitor, query=""):
    page = visitor.get(f"{GROUPS}?{query}")
    assert page.status == 200, page.text
    return [
        found["href"].rpartition("/")[2]
        for found, _text in page.find("a", **{"class": "dlq-cause"})
    ]


class TestList:
    def test_the_largest_group_comes_first(self, ann):
        page = ann.get(GROUPS)
        assert listed(ann) == [CHARGE, "aaaa000000000000"]
        assert "2 groups, most open letters first." in page.text
        assert "ValueError in charge 9c1e0000 terminal: python.bug bad currency" in page.text
        assert page.find("a", href=f"/dead-letters/letters?group={CHARGE}")[0][1] == "2"

    def test_a_row_offers_acts_that_lead_back_to_the_list(self, ann, charge):
        page = ann.get(f"{GROUPS}?task=charge&status=open")
        assert page.find("a", href=f"/dead-letters/redrive?group={CHARGE}")[0][1] == "Redrive"
        after = ann.post(f"{PAGE}/ignore", [*page.form(f"{PAGE}/ignore"), ("until", "7d")])
        assert after.status == 303
        assert charge().ignored_until == NOW + timedelta(days=7)
        address = after.headers["Location"]
        assert address == f"{GROUPS}?task=charge&status=open&done=ignore"
        assert "The group is ignored" in ann.get(address).find("p", id="dlq-done")[0][1]

    def test_the_second_of_two_people_sees_who_was_first(self, ann, store, charge):
        form = ann.get(GROUPS).form(f"{PAGE}/resolve")
        store.groups.triage(CHARGE, Ignore(), who="bob", now=NOW + timedelta(seconds=5))
        refused = ann.post(f"{PAGE}/resolve", form)
        assert refused.status == 409
        assert "bob decided about this group" in refused.text
        assert "it is ignored now. Nothing was changed" in refused.text
        assert charge().status is GroupStatus.IGNORED

    def test_a_decision_before_the_form_does_not_stand_in_the_way(self, ann, decide, charge):
        decide(Ignore())
        form = ann.get(PAGE).form(f"{PAGE}/resolve")
        assert ann.post(f"{PAGE}/resolve", form).status == 303
        assert charge().status is GroupStatus.RESOLVED

    def test_a_row_acts_once(self, ann, charge):
        form = ann.get(GROUPS).form(f"{PAGE}/resolve")
        assert ann.post(f"{PAGE}/resolve", form).status == 303
        assert charge().status is GroupStatus.RESOLVED
        assert ann.post(f"{PAGE}/resolve", form).status == 409

    def test_a_forged_way_back_stays_on_the_list(self, ann):
        form = [pair for pair in ann.get(GROUPS).form(f"{PAGE}/resolve") if pair[0] != "query"]
        after = ann.post(f"{PAGE}/resolve", [*form, ("query", "//evil.example/?a=b\r\nX: y")])
        assert after.headers["Location"].startswith(f"{GROUPS}?")
        assert "\n" not in after.headers["Location"]

    def test_filters_that_are_set_can_be_removed_one_by_one(self, ann):
        page = ann.get(f"{GROUPS}?task=charge&status=open")
        chips = page.find("a", **{"class": "dlq-chip"})
        assert [(found["href"], text.split()[:2]) for found, text in chips] == [
            (f"{GROUPS}?status=open", ["task:", "charge"]),
            (f"{GROUPS}?task=charge", ["status:", "open"]),
        ]

    def test_pages_follow_each_other(self, ann, store, monkeypatch):
        monkeypatch.setattr(request, "USUAL_ROWS", 1)
        page = ann.get(f"{GROUPS}?exception=ValueError&exception=")
        assert page.find("a", rel="next") == []
        page = ann.get(f"{GROUPS}?status=open")
        assert "More than 1 group, most open letters first." in page.text
        [(following, _)] = page.find("a", rel="next")
        assert "status=open&after=" in following["href"]
        second = ann.get(following["href"])
        assert listed(ann, following["href"].partition("?")[2]) == ["aaaa000000000000"]
        assert "More groups, most open letters first." in second.text
        assert second.find("a", rel="next") == []
        assert second.find("a", href=f"{GROUPS}?status=open")[0][1] == "First page"

    def test_a_list_without_groups_offers_the_names_that_are_near(self, ann):
        page = ann.get(f"{GROUPS}?exception=valueerr")
        assert "No groups match." in page.text
        [(_, said)] = page.find("p", **{"class": "dlq-note dlq-near"})
        assert "did you mean 'ValueError'?" in said
        assert ann.get(f"{GROUPS}?owner=eve").find("p", **{"class": "dlq-note dlq-near"}) == []

    def test_an_unknown_mark_is_refused(self, ann):
        page = ann.get(f"{GROUPS}?after=x")
        assert page.status == 400
        assert "not a cursor" in page.find("p", role="alert")[0][1]

    def test_the_last_day_is_drawn(self, ann):
        charts = ann.get(GROUPS).find("svg", role="img")
        assert [found["aria-label"] for found, _ in charts] == [
            "2 letters in the last 24 hours",
            "1 letter in the last 24 hours",
        ]

    def test_marks_status_owner_and_note(self, ann, store, decide):
        decide(Assign(owner="carol"))
        decide(Annotate(note="a comma\nsecond"))
        decide(Ignore(count=5))
        text = ann.get(f"{GROUPS}?status=ignored").text
        for said in ("carol", "a comma", "ends after 5 more failures"):
            assert said in text
        assert "second" not in text
        decide(Resolve(release="1.5"))
        assert "in 1.5" in ann.get(f"{GROUPS}?owner=carol").text
        assert "new" in ann.get(f"{GROUPS}?task=mail").text

    @pytest.mark.parametrize(
        ("query", "expected"),
        [
            ("task=charge", [CHARGE]),
            ("exception=Timeout", ["aaaa000000000000"]),
            ("group=9c1e", [CHARGE]),
            ("since=35m", ["aaaa000000000000"]),
            ("until=35m", [CHARGE]),
            ("mark=new", [CHARGE, "aaaa000000000000"]),
            ("mark=regressed", []),
            ("status=ignored", []),
            ("status=", [CHARGE, "aaaa000000000000"]),
            ("owner=ann", []),
            ("owner=+", [CHARGE, "aaaa000000000000"]),
        ],
    )
    def test_filters(self, ann, query, expected):
        assert listed(ann, query) == expected

    def test_ignored_groups_are_listed_on_request_only(self, ann, decide):
        decide(Ignore())
        assert listed(ann) == ["aaaa000000000000"]
        assert listed(ann, "status=ignored") == [CHARGE]
        assert listed(ann, "status=ignored&status=open") == [CHARGE, "aaaa000000000000"]

    @pytest.mark.parametrize(
        ("query", "said"),
        [
            ("status=gone", "'gone' is not a status"),
            ("mark=old", "'old' is not a mark"),
            ("queue=mail", "not kept by queue"),
            ("held=1", "not kept by held"),
            ("owner=a&owner=b", "more than once"),
            ("since=never", "is not a time"),
            ("stats=open", "did you mean 'status'"),
        ],
    )
    def test_an_invalid_filter_is_reported_on_the_page(self, ann, query, said):
        page = ann.get(f"{GROUPS}?{query}")
        assert page.status == 400
        assert said in page.find("p", role="alert")[0][1]

    def test_none(self, visit, store):
        visitor = visit()
        assert "No groups with open letters" in visitor.get(GROUPS).text
        assert "No groups match." in visitor.get(f"{GROUPS}?task=x").text


class TestPage:
    def test_one_in_full(self, ann, decide):
        decide(Annotate(note="a comma\nsecond line"))
        page = ann.get(PAGE)
        assert page.status == 200
        for said in (
            "ValueError in shop.charge",
            "new",
            "2 open, 2 in total",
            "second line",
            "2 failures",
        ):
            assert said in page.text
        [(found, _)] = [
            item for item in page.find("svg") if "7 days" in item[0].get("aria-label", "")
        ]
        assert "2 in total, at most 2 (21 Nov 12:00 to 18:00 UTC)" in found["aria-label"]
        assert page.find("a", href="/dead-letters/letters/0d3f2222-bbbb")

    def test_a_prefix_redirects_to_the_full_id(self, ann):
        answer = ann.get(f"{GROUPS}/9c1e")
        assert (answer.status, answer.headers["Location"]) == (302, PAGE)
        answer = ann.get(f"{GROUPS}/9c1e?range=30d")
        assert answer.headers["Location"] == f"{PAGE}?range=30d"

    def test_an_ambiguous_prefix_does_not(self, ann, store):
        store.letters.save([letter("other", fingerprint="9c1f000000000000")])
        answer = ann.get(f"{GROUPS}/9c1")
        assert (answer.status, "give more characters" in answer.text) == (400, True)

    @pytest.mark.parametrize("name", ["77", "%00", "..%2F..", "x" * 3_000, "%F0%9F%92%A5"])
    def test_an_unknown_id(self, ann, name):
        answer = ann.get(f"{GROUPS}/{name}")
        assert answer.status == 404
        assert answer.find("section", role="alert")

    def test_redrive_and_discard_ask_for_the_number(self, ann):
        page = ann.get(PAGE)
        for name in ("redrive", "discard"):
            [(found, _)] = page.find("a", id=f"dlq-{name}")
            asking = ann.get(found["href"])
            assert f"{name.capitalize()} 2 letters" in asking.text
            assert asking.find("input", name="number")

    def test_a_group_without_open_letters_offers_none(self, ann, store):
        store.closing.discard(Filter(group=CHARGE), who="ann", why="", now=NOW)
        page = ann.get(PAGE)
        assert page.find("a", id="dlq-redrive") == []
        assert "There are no open letters." in page.text

    def test_hostile_groups_stay_text(self, ann, store):
        evil = '"><script>alert(1)</script>\u202e'
        store.letters.save(
            [letter("e", fingerprint="e<b>/ ?", task=evil, exception_type=evil, message=evil)]
        )
        store.groups.triage(
            "e<b>/ ?", Annotate(note="</textarea><script>x</script>"), who="x", now=NOW
        )
        store.groups.triage("e<b>/ ?", Assign(owner='" onfocus="x'), who="x", now=NOW)
        for path in (f"{GROUPS}/{quote('e<b>/ ?', safe='')}", GROUPS):
            page = ann.get(path)
            assert page.status == 200
            assert "<script>alert" not in page.body
            assert "<script>x" not in page.body
            assert "\u202e" not in page.body
            assert page.find("input", onfocus="x") == []


class TestActs:
    def test_ignore(self, ann, charge):
        answer = act(ann, "ignore", until="2d", rate="100/h", count="7")
        assert answer.headers["Location"] == f"{PAGE}?done=ignore"
        group = charge()
        assert (group.status, group.status_by) == (GroupStatus.IGNORED, "ann (flower)")
        assert group.ignored_until == NOW + timedelta(days=2)
        assert (group.ignored_rate, group.ignored_total) == (100, 9)
        said = ann.get(f"{PAGE}?done=ignore").text
        assert "The group is ignored" in said
        assert "or after 7 more failures" in said

    def test_resolve_and_regress_and_reopen(self, ann, store, charge):
        assert act(ann, "resolve", release=" 1.5 ").status == 303
        assert (charge().status, charge().resolved_in) == (GroupStatus.RESOLVED, "1.5")
        store.letters.save([letter("back", attempt(minutes=70), release="1.6")])
        assert charge().status is GroupStatus.OPEN
        page = ann.get(PAGE)
        assert "regressed" in page.find("span", id="dlq-state")[0][1]
        assert act(ann, "reopen").status == 303
        assert charge().regressed_at is None

    def test_reopen_is_not_offered_for_an_open_group(self, ann):
        assert ann.get(PAGE).find("button", id="dlq-reopen") == []

    def test_note_and_owner(self, ann, charge):
        assert act(ann, "note", note=" see\r\nticket 7 ").status == 303
        assert act(ann, "assign", owner="carol").status == 303
        assert (charge().note.split(), charge().owner) == (["see", "ticket", "7"], "carol")
        assert act(ann, "note", note="").status == 303
        assert act(ann, "assign", owner="").status == 303
        assert (charge().note, charge().owner) == ("", "")

    def test_merge_and_split(self, ann, store, charge):
        (mail,) = {one.fingerprint for one in store.groups.find(Filter(), now=NOW)} - {CHARGE}
        answer = act(ann, "merge", page=f"{GROUPS}/{mail}", into="9c1e")
        assert answer.status == 303
        assert charge().open_count == 3
        moved = ann.get(f"{GROUPS}/{mail}")
        assert moved.headers["Location"].endswith(PAGE)
        page = ann.get(PAGE)
        assert f"{mail}, by ann (flower)" in page.find("dd", **{"class": "dlq-merged"})[0][1]
        assert act(ann, "split", member=mail).status == 303
        assert charge().open_count == 2
        assert ann.get(PAGE).find("button", id="dlq-split") == []

    def test_why_its_letters_are_grouped(self, ann, store, charge):
        grounds = Grounds(frames=("shop:charge",), evidence=("status=404",))
        store.letters.save([letter("why", attempt(minutes=70), grounds=grounds)])
        said = "by task, exception, 1 own frame and status 404; the message is not used"
        for address in (PAGE, "/dead-letters/letters/why"):
            assert ann.get(address).find("dd", id="dlq-grouped")[0][1] == said

    def test_each_act_is_audited_and_changes_no_letter(self, ann, store, three):
        act(ann, "resolve")
        [row] = store.audit.find().rows
        assert (row.act, row.who, row.detail["group"]) == ("resolve", "ann (flower)", CHARGE)
        assert {store.letters.get(task_id).state for task_id in three} == {State.DEAD}

    @pytest.mark.parametrize(
        ("fields", "said"),
        [
            ({"until": "yesterday"}, "is not a time"),
            ({"until": "2020-01-01"}, "is in the past"),
            ({"rate": "many"}, "is not a rate"),
            ({"count": "0"}, "whole number above zero"),
            ({"count": "-3"}, "whole number above zero"),
            ({"count": "²"}, "whole number above zero"),
        ],
    )
    def test_an_invalid_form_changes_nothing_and_may_be_sent_again(self, ann, charge, fields, said):
        action = f"{PAGE}/ignore"
        form = [pair for pair in ann.get(PAGE).form(action) if pair[0] not in fields]
        answer = ann.post(action, [*form, *fields.items()])
        assert (answer.status, said in answer.text) == (400, True)
        assert charge().status is GroupStatus.OPEN
        # The same page, with what was typed, and the error beside the field or above the form.
        [(name, typed)] = fields.items()
        [(field, _)] = [one for one in answer.find("input", name=name) if "value" in one[0]]
        assert field["value"] == typed
        assert answer.find("details", id="dlq-ignoring")[0][0].keys() >= {"open"}
        [(alert, _)] = answer.find("p", role="alert")
        is_beside = field.get("aria-describedby") == alert["id"]
        assert is_beside or (name, typed, alert["id"]) == ("count", "0", "dlq-problem")
        assert ann.post(action, form).status == 303

    def test_a_day_begins_in_the_zone_of_the_reader(self, ann, charge):
        # NOW is a Saturday.
        act(ann, "ignore", until="Monday", zone="America/New_York")
        assert charge().ignored_until.isoformat() == "2026-11-23T05:00:00+00:00"
        act(ann, "ignore", until="tomorrow", zone="no/such/zone")
        assert charge().ignored_until.isoformat() == "2026-11-22T00:00:00+00:00"

    def test_a_picked_time_is_in_the_zone_of_the_reader(self, ann, charge):
        act(ann, "ignore", at="2026-12-01T09:30", zone="Asia/Tokyo")
        assert charge().ignored_until.isoformat() == "2026-12-01T00:30:00+00:00"
        said = ann.get(PAGE).find("dd", id="dlq-ends")[0][1]
        assert said == "at 2026-12-01 00:30:00 UTC"

    def test_two_times_are_one_too_many(self, ann, charge):
        answer = act(ann, "ignore", at="2026-12-01T09:30", until="3d")
        assert answer.status == 400
        assert "Give one time" in answer.find("p", id="dlq-problem-at")[0][1]
        assert charge().status is GroupStatus.OPEN

    @pytest.mark.parametrize("zone", ["../../etc/passwd", "\x00", "x" * 9_000, "/", "Europe"])
    def test_a_hostile_zone_is_utc(self, ann, charge, zone):
        assert act(ann, "ignore", until="monday", zone=zone).status == 303
        assert charge().ignored_until.isoformat() == "2026-11-23T00:00:00+00:00"

    def test_a_reload_of_a_form_that_was_not_accepted_leads_to_the_group(self, ann):
        assert ann.get(f"{PAGE}/ignore").headers["Location"] == PAGE

    def test_an_unknown_group_to_merge_into_keeps_the_form(self, ann, charge):
        answer = act(ann, "merge", into="no<such>")
        assert answer.status == 404
        assert answer.find("input", name="into")[0][0]["value"] == "no<such>"
        assert "No group has this fingerprint" in answer.find("p", id="dlq-problem")[0][1]

    def test_a_note_that_is_too_long_is_refused(self, ann, charge):
        answer = act(ann, "note", note="x" * 4_001)
        assert (answer.status, "use at most 4,000" in answer.text) == (400, True)
        assert charge().note == ""

    def test_a_form_is_accepted_once_and_for_its_group_only(self, ann, store, charge):
        action = f"{PAGE}/resolve"
        form = ann.get(PAGE).form(action)
        assert ann.post(f"{GROUPS}/aaaa000000000000/resolve", form).status == 409
        assert ann.post(f"{PAGE}/ignore", form).status == 409
        assert ann.post(action, form).status == 303
        assert ann.post(action, form).status == 409
        assert len(store.audit.find().rows) == 1

    def test_an_unknown_act(self, ann):
        form = ann.get(PAGE).form(f"{PAGE}/resolve")
        assert ann.post(f"{PAGE}/burn", form).status == 404

    def test_a_group_that_no_longer_exists(self, ann, site_of):
        mark = site_of(ann).forms.mark("resolve 77", "ann (flower)")
        form = [
            ("mark", mark),
            *(pair for pair in ann.get(PAGE).form(f"{PAGE}/resolve") if pair[0] == "_xsrf"),
        ]
        assert ann.post(f"{GROUPS}/77/resolve", form).status == 404

    def test_without_a_token_nothing_is_changed(self, ann, charge):
        form = [pair for pair in ann.get(PAGE).form(f"{PAGE}/resolve") if pair[0] != "_xsrf"]
        assert ann.post(f"{PAGE}/resolve", form).status == 403
        assert charge().status is GroupStatus.OPEN

    def test_without_authentication_it_can_be_read_only(self, visit, three, charge):
        visitor = visit()
        page = visitor.get(PAGE)
        assert (page.status, page.find("form")) == (200, [])
        assert visitor.post(f"{PAGE}/resolve", {}).status == 403
        assert charge().status is GroupStatus.OPEN


class TestTickets:
    def test_the_list_and_the_page_link_to_the_ticket(self, ann, handled):
        handled("77e1", Ticket("https://tickets.example.com/7"))
        for path in (GROUPS, f"{GROUPS}/aaaa000000000000"):
            page = ann.get(path)
            [(found, text), *_] = page.find("a", rel="noopener noreferrer")
            assert found["href"] == text == "https://tickets.example.com/7"
            assert "by auto:ticketing" in page.text
        assert ann.get(PAGE).find("section", id="dlq-tickets") == []

    def test_an_escalation_is_shown_as_text(self, ann, handled):
        handled("77e1", Escalate("payments", "the bank is away"))
        for path in (GROUPS, f"{GROUPS}/aaaa000000000000"):
            page = ann.get(path)
            assert "escalation: payments: the bank is away" in page.text
            assert page.find("a", rel="noopener noreferrer") == []


def redrive(store, fingerprint):
    """Send the letters of a group."""
    store.operations.create(operation("0a", wanted=Filter(group=fingerprint), created_at=NOW))
    redriving.claim(
        store, Filter(group=fingerprint), token="0a", lease_until=NOW + timedelta(hours=1),
        limit=9, now=NOW,
    )  # fmt: skip
    store.claims.confirm("0a", "0a", {}, now=NOW, is_all=True)


class TestStory:
    def events(self, ann, page=PAGE):
        """The events of a page: the kind and the text of each."""
        [(_, _story)] = ann.get(page).find("section", id="dlq-story")
        found = [
            item for item in ann.get(page).find("li") if "dlq-event-" in item[0].get("class", "")
        ]
        return [
            (item["class"].removeprefix("dlq-event-"), " ".join(text.split()))
            for item, text in found
        ]

    def test_decisions_notes_and_owners_newest_first(self, ann, store):
        for minutes, act in enumerate(
            (
                Ignore(until=NOW + timedelta(days=2), rate=100, count=5),
                Ignore(),
                Annotate(note="a comma\nsecond line"),
                Annotate(note=""),
                Assign(owner="carol"),
                Assign(owner=""),
                Resolve(release="1.5"),
                Resolve(),
                Reopen(),
            )
        ):
            at = T0 + timedelta(minutes=30 + minutes)
            store.groups.triage(CHARGE, act, who="bob", now=at)
        assert [(kind, text[24:]) for kind, text in self.events(ann)] == [
            ("decision", "bob reopened the group"),
            ("decision", "bob resolved the group"),
            ("decision", "bob resolved the group in release 1.5"),
            ("decision", "bob removed the owner of the group"),
            ("decision", "bob gave the group to carol"),
            ("note", "bob removed the note"),
            ("note", "bob wrote the note a comma second line"),
            ("decision", "bob ignored the group until it is reopened"),
            (
                "decision",
                "bob ignored the group until 2026-11-23 13:00:00 UTC, or until 100 failures within an hour, "
                "or for 5 more failures",
            ),
            ("failure", "The first letter failed."),
        ]
        assert self.events(ann)[0][1].startswith("2026-11-21 12:38:00 UTC bob")

    def test_a_redrive_is_told_once_with_its_outcome(self, ann, store):
        orders = Orders(why="the bank is back")
        wanted = Filter(group="9c1e")
        store.operations.create(operation("0a", wanted=wanted, orders=orders, created_at=NOW))
        store.operations.move("0a", OperationState.CANCELLED, who="bob", why="wrong", now=NOW)
        redrives = [text for kind, text in self.events(ann) if kind == "redrive"]
        assert len(redrives) == 2
        assert "bob cancelled the redrive operation 0a wrong" in redrives[0] + redrives[1]
        assert any(
            "ann began a redrive (0 of 3 letters sent) operation 0a the bank is back" in one
            for one in redrives
        )
        assert ann.get(PAGE).find("a", href="/dead-letters/operations/0a")

    def test_a_redrive_with_another_filter_is_told_if_it_sent_a_letter_of_the_group(
        self, ann, store
    ):
        store.operations.create(operation("0b", wanted=Filter(task="shop.charge")))
        assert "redrive" not in [kind for kind, _ in self.events(ann)]
        redriving.claim(
            store, Filter(task="shop.charge"), token="0b", lease_until=NOW, limit=9, now=T0
        )
        assert "redrive" in [kind for kind, _ in self.events(ann)]

    def test_tickets_and_regressions(self, ann, store, handled):
        handled("77e1", Ticket("https://tickets.example.com/7"))
        mail = "aaaa000000000000"
        store.groups.triage(mail, Resolve(), who="ann", now=T0 + timedelta(minutes=40))
        back = letter(
            "back", attempt(minutes=45), fingerprint=mail, task="shop.mail",
            exception_type="requests.exceptions.Timeout",
        )  # fmt: skip
        store.letters.save([back])
        told = self.events(ann, f"{GROUPS}/{mail}")
        assert [kind for kind, _ in told].count("failure") == 2
        [ticket] = [text for kind, text in told if kind == "ticket"]
        assert "auto:ticketing opened the ticket https://tickets.example.com/7" in ticket

    def test_it_is_bounded_and_leads_to_the_audit(self, ann, store):
        for number in range(40):
            store.groups.triage(CHARGE, Annotate(note=f"note {number}"), who="bob", now=NOW)
        assert len(self.events(ann)) == 30
        [(link, _)] = ann.get(PAGE).find("a", href=f"/dead-letters/audit?group={CHARGE}")
        assert "40 acts" in ann.get(link["href"]).text


class TestEvidence:
    """The page of a group shows the cause."""

    @pytest.fixture
    def page(self, ann, store, operation):
        def save(name, minutes, tenant, **changes):
            call = {"args": [minutes], "kwargs": {"tenant": tenant, "currency": "EUX"}}
            at = attempt(minutes=minutes)
            store.letters.save([letter(name, at, fingerprint="ffff", **{**call, **changes})])

        save("first", 1, "globex", release="1.4.1")
        save("second", 2, "acme")
        save("third", 3, "acme", traceback=TRACEBACK)
        return ann.get(f"{GROUPS}/ffff")

    def test_the_verdict_and_its_rule(self, ann, page):
        [(_, said)] = page.find("p", id="dlq-verdict")
        assert " ".join(said.split()) == "The newest letter is terminal, by the rule python.bug."
        assert page.find("a", href="/dead-letters/letters?group=ffff&rule=python.bug")
        listed = [text for _, text in ann.get(GROUPS).find("small", **{"class": "dlq-verdict"})]
        assert listed == ["terminal: python.bug"] * 3

    def test_the_newest_traceback_has_the_users_own_frames(self, page):
        [(_, shown)] = page.find("pre", **{"class": "dlq-code dlq-traceback"})
        assert "shop/billing.py" in shown
        assert "celery/app/trace.py" not in shown
        assert "1 frame of libraries" in shown
        assert page.find("a", href="/dead-letters/letters/third")

    def test_the_arguments_of_three_letters_are_side_by_side(self, page):
        differing = [text for _, text in page.find("tr", **{"class": "dlq-differs"})]
        assert differing == ["order_id321", "tenantacmeacmeglobex"]
        [(_, table)] = page.find("section", id="dlq-compared")
        assert "currencyEUXEUXEUX" in table

    def test_what_most_letters_share_leads_to_those_letters(self, ann, page):
        [(_, shares)] = page.find("section", id="dlq-shares")
        said = " ".join(shares.split())
        assert "currency EUX100%" in said
        assert "tenant acme66%" in said
        assert "release 1.4.133%" in said
        found = page.find("a", href="/dead-letters/letters?group=ffff&arg=tenant%3Dacme")
        assert "2 letters match" in ann.get(found[0][0]["href"]).text

    def test_each_release_has_all_its_letters(self, ann, page):
        said = [" ".join(text.split()) for _, text in page.find("dd", **{"class": "dlq-release"})]
        assert said == [
            "1.4.2: 2 open letters, the first 2026-11-21 12:02:00 UTC · redrive them",
            "1.4.1: 1 open letter, the first 2026-11-21 12:01:00 UTC · redrive them",
        ]
        for wanted in ("letters", "redrive"):
            address = f"/dead-letters/{wanted}?group=ffff&release=1.4.1"
            (found, _), *_ = page.find("a", href=address)
            assert "1 letter" in ann.get(found["href"]).text

    def test_the_letters_of_the_newest_release_are_one_click_from_their_redrive(self, ann, page):
        [(found, text)] = page.find("a", id="dlq-redrive-release")
        assert text == "Redrive the 2 of release 1.4.2"
        assert "Redrive 2 letters" in ann.get(found["href"]).text

    def test_a_single_release_has_no_button_of_its_own(self, ann):
        assert ann.get(PAGE).find("a", id="dlq-redrive-release") == []

    def test_too_many_letters_are_not_counted_by_release(self, ann, monkeypatch):
        monkeypatch.setattr(counting, "MOST_READ", 1)
        page = ann.get(PAGE)
        assert page.status == 200
        assert "not counted, because there are too many open letters" in page.text

    def test_an_argument_by_position_has_the_name_of_its_parameter(self, ann, store):
        alike = [letter(f"s{n}", fingerprint="5a5a", args=[7], kwargs={}) for n in range(3)]
        store.letters.save(alike)
        page = ann.get(f"{GROUPS}/5a5a")
        assert "order_id 7" in " ".join(page.find("section", id="dlq-shares")[0][1].split())
        [(found, _)] = page.find("a", href="/dead-letters/letters?group=5a5a&arg=order_id%3D7")
        assert "3 letters match" in ann.get(found["href"]).text

    def test_merged_letters_of_another_task_keep_their_positions(self, ann, store):
        store.letters.save(
            [letter(f"s{n}", fingerprint="5a5a", args=[7], kwargs={}) for n in range(3)]
            + [letter("other", fingerprint="5a5a", args=[7], kwargs={}, task="shop.mail")]
        )
        page = ann.get(f"{GROUPS}/5a5a")
        assert page.find("a", href="/dead-letters/letters?group=5a5a&arg=order_id%3D7") == []

    def test_redrives_of_the_newest_letters_are_counted(self, ann, store, page):
        assert page.find("p", id="dlq-redrives") == []
        redrive(store, "ffff")
        [(_, redrives)] = ann.get(f"{GROUPS}/ffff").find("p", id="dlq-redrives")
        assert (
            redrives
            == "3 letters of the newest sent again: 0 succeeded, 0 failed again, 3 awaited."
        )

    def test_a_group_without_letters_has_no_evidence(self, ann, store, page):
        store.deleting.delete(
            Filter(group="ffff", states=frozenset({State.DEAD})), who="ann", why="", now=NOW
        )
        page = ann.get(f"{GROUPS}/ffff")
        assert page.status in (200, 404)
        assert page.find("section", id="dlq-compared") == []


TRACEBACK = """Traceback (most recent call last):
  File "/srv/venv/lib/python3.12/site-packages/celery/app/trace.py", line 453, in trace_task
    R = retval = fun(*args, **kwargs)
  File "/srv/shop/billing.py", line 88, in charge
    raise ValueError("bad currency")
ValueError: bad currency
"""
