"""Filters on release, tag, root, verdict and rule."""

from __future__ import annotations

from datetime import timedelta

import pytest
from support.factories import T0, attempt, letter, parking
from support.stores import redriving

from celery_dlq.base.redact import safe_text
from celery_dlq.model.letter import Explanation
from celery_dlq.model.states import State, Verdict
from celery_dlq.store.base import Filter
from celery_dlq.store.letters import pages

pytestmark = pytest.mark.on_servers

LATER = T0 + timedelta(days=9)

#: Values that a database may compare in a way of its own.
HOSTILE = [
    "plain", "Plain", "pl%in", "pl_in", "pla/in", "pla\\in", "pla\\\\in", "'plain'", '"plain"', 'pl"ain', '"',
    "\\", '\\"', "%", "_", "*", "?", "[a-z]*", "ü", "Ü", "u", "u\u0308", "\U0001f430", "nul\x00", "\x00",
    "\ud800", "a\nb", "a,b", '","', '["', "[", "]", "null", "1",
]  # fmt: skip


def judged(verdict: Verdict = Verdict.TERMINAL, rule: str = "python.bug") -> Explanation:
    return Explanation(verdict=verdict, rule=rule)


def at(task_id: str, number: float = 0, **changes):
    return letter(task_id, attempt(minutes=number), **changes)


def waiting(task_id: str, **changes):
    return parking(task_id, 60, **changes)


def found(store, **filters) -> list[str]:
    """The ids that match. There must be as many as the count says."""
    wanted = Filter(**filters)
    names = sorted(item.task_id for item in store.letters.find(wanted, limit=100).letters)
    assert store.counts.letters(wanted) == len(names)
    assert sum(store.counts.by_task(wanted).values()) == len(names)
    return names


@pytest.fixture(params=["letters", "parked retries"])
def kept(request, store):
    """Gives two functions: one saves letters or parks retries, the other one asks for their ids."""
    parks = request.param != "letters"
    only = {"states": frozenset({State.PARKED})} if parks else {}

    def save(*many):
        if parks:
            store.parked.park([waiting(name, **fields) for name, fields in many], now=T0)
        else:
            store.letters.save([at(name, **fields) for name, fields in many])

    return save, lambda **filters: found(store, **only, **filters)


def test_each_field_chooses(kept):
    save, ask = kept
    save(
        ("a", {"release": "1.4.2", "tags": ("money", "slow"), "root_id": "r"}),
        ("b", {"release": "1.4", "tags": ("slow",), "explanation": judged(rule="http.status")}),
        ("c", {"release": "", "tags": (), "explanation": judged(Verdict.TRANSIENT, "httpx.pool")}),
    )
    assert ask(release="1.4") == ["b"]
    assert ask(release="1.4.2") == ["a"]
    assert ask(tag="slow") == ["a", "b"]
    assert ask(tag="money") == ["a"]
    assert ask(verdict=Verdict.TRANSIENT) == ["c"]
    assert ask(verdict=Verdict.TERMINAL) == ["a", "b"]
    assert ask(rule="http.status") == ["b"]
    assert ask(rule="http.") == ["b"]
    assert ask(rule="http") == ["b", "c"]
    assert ask(root="r") == ["a"]
    assert ask(tag="slow", release="1.4", verdict=Verdict.TERMINAL, rule="http", root="b") == ["b"]
    assert ask(tag="slow", release="1.4", verdict=Verdict.TRANSIENT) == []
    assert ask(tag="none") == ask(release="none") == ask(rule="none") == ask(root="none") == []


def test_a_tag_is_matched_whole(kept):
    save, ask = kept
    tags = [
        "a",
        "ab",
        "ba",
        "A",
        'x"a"',
        'x"a',
        'a"',
        "x,a",
        'x,"a"',
        "[a",
        '["a"]',
        "a\\",
        "",
        "x,",
    ]
    save(*((f"{number:02}", {"tags": (tag, "y")}) for number, tag in enumerate(tags)))
    assert ask(tag="a") == ["00"]
    assert ask(tag="A") == ["03"]
    assert [ask(tag=tag) for tag in tags if tag] == [
        [f"{number:02}"] for number, tag in enumerate(tags) if tag
    ]
    assert ask(tag="y") == [f"{number:02}" for number in range(len(tags))]


@pytest.mark.parametrize("field", ["release", "tag"])
def test_hostile_values_are_compared_as_they_are(kept, field):
    save, ask = kept
    named = {f"{number:02}": value for number, value in enumerate(HOSTILE)}
    make = {
        "release": lambda value: {"release": value},
        "tag": lambda value: {"tags": ("x", value)},
    }
    save(*((task_id, make[field](value)) for task_id, value in named.items()))
    assert {task_id: ask(**{field: value}) for task_id, value in named.items()} == {
        task_id: [task_id] for task_id in named
    }


def test_the_beginning_of_a_rule_is_compared_as_it_is(kept):
    save, ask = kept
    named = {f"{number:02}": value for number, value in enumerate(HOSTILE)}
    save(*((task_id, {"explanation": judged(rule=rule)}) for task_id, rule in named.items()))
    for rule in HOSTILE:
        begin_so = [
            one for one, other in named.items() if safe_text(other).startswith(safe_text(rule))
        ]
        assert ask(rule=rule) == begin_so


def test_a_long_value_is_compared_as_it_is_stored(kept):
    save, ask = kept
    save(("a", {"release": "r" * 300, "root_id": "i" * 300, "tags": ("t" * 3_000,)}), ("b", {}))
    assert ask(release="r" * 300) == ask(root="i" * 300) == ask(tag="t" * 3_000) == ["a"]
    assert ask(release="r" * 254) == ask(root="i" * 254) == ask(tag="t" * 2_999) == []


@pytest.mark.parametrize("value", [" ", "   "])
def test_blanks_do_not_stand_for_no_value(kept, value):
    save, ask = kept
    save(("a", {"release": "", "root_id": ""}), ("b", {"release": " ", "root_id": " "}))
    assert ask(release=value) == ask(root=value) == ask(tag=value) == []


class TestRoot:
    def test_the_letter_of_the_first_task_belongs_to_its_canvas(self, kept):
        save, ask = kept
        save(("first", {}), ("second", {"root_id": "first"}), ("other", {}))
        assert ask(root="first") == ["first", "second"]

    def test_a_first_task_that_names_no_root_belongs_to_it_too(self, kept):
        save, ask = kept
        save(
            ("first", {"root_id": None}),
            ("second", {"root_id": "first"}),
            ("no", {"root_id": None}),
        )
        assert ask(root="first") == ["first", "second"]
        assert ask(root="no") == ["no"]

    def test_a_task_in_the_middle_of_a_canvas_is_no_root(self, kept):
        save, ask = kept
        save(("first", {}), ("second", {"root_id": "first"}))
        assert ask(root="second") == []

    def test_the_id_of_a_first_task_may_be_too_long(self, kept):
        save, ask = kept
        save(("f" * 300, {"root_id": None}), ("second", {"root_id": "f" * 300}))
        assert len(ask(root="f" * 300)) == 2

    def test_upper_and_lower_case_differ(self, kept):
        save, ask = kept
        save(("a", {"root_id": "Root"}), ("b", {"root_id": "root"}))
        assert ask(root="Root") == ["a"]

    def test_letters_in_every_state_are_found_at_once(self, store, monkeypatch):
        monkeypatch.setattr(pages, "STEP", 1)
        store.letters.save([at(f"{number}", number, root_id="0") for number in range(5)])
        store.parked.park([waiting("p", root_id="0")], now=T0)
        store.closing.discard(Filter(ids=("1",)), who="ann", why="", now=T0)
        page = store.letters.find(Filter(root="0", states=frozenset(State)), patience_s=0)
        assert sorted(item.task_id for item in page.letters) == ["0", "1", "2", "3", "4", "p"]
        assert page.searched_to is None


@pytest.mark.parametrize(
    "filters",
    [{"release": "2"}, {"tag": "t"}, {"verdict": Verdict.TRANSIENT}, {"rule": "http."}],
    ids=lambda filters: next(iter(filters)),
)
class TestWithoutAnIndex:
    @pytest.fixture
    def nine(self, store, monkeypatch):
        """Nine letters; only the oldest one matches."""
        monkeypatch.setattr(pages, "STEP", 2)
        other = {
            "release": "2",
            "tags": ("t",),
            "explanation": judged(Verdict.TRANSIENT, "http.url"),
        }
        store.letters.save([at(f"{n}", n, **({} if n else other)) for n in range(9)])
        return store

    def test_letters_are_searched_step_by_step(self, nine, filters):
        page = nine.letters.find(Filter(**filters), patience_s=0)
        assert (page.letters, page.searched_to) == ((), T0 + timedelta(minutes=7))
        assert found(nine, **filters) == ["0"]

    def test_acts_take_the_letters(self, nine, filters):
        wanted = Filter(**filters)
        claim = redriving.claim(nine, wanted, token="t", lease_until=LATER, limit=9, now=T0)
        assert [item.task_id for item in claim.letters] == ["0"]
        nine.claims.rescue(LATER)
        assert nine.closing.discard(wanted, who="ann", why="", now=T0) == 1
        assert found(nine, states=frozenset({State.DISCARDED}), **filters) == ["0"]
        assert nine.closing.undiscard(wanted, who="ann", now=T0) == 1


def test_a_retry_is_released_by_its_fields(store):
    store.parked.park([waiting("p", tags=("t",), root_id="r"), waiting("q")], now=T0)
    released = Filter(tag="t", root="r", states=frozenset({State.PARKED}))
    assert store.parked.make_due(released, place="here", who="ann", now=T0) == 1
