from __future__ import annotations

from datetime import timedelta

import pytest
from support.factories import T0, attempt, envelope, letter
from support.stores import redriving

from celery_dlq.errors import FilterError
from celery_dlq.model.letter import Outcome
from celery_dlq.model.states import Reason, State
from celery_dlq.store.base import Filter

ALL = frozenset(State)


def minutes(number: float):
    return T0 + timedelta(minutes=number)


def at(task_id: str, number: float = 0, **changes):
    return letter(task_id, attempt(minutes=number), **changes)


def found(store, **filters) -> list[str]:
    """The ids that match. There must be as many as the count says."""
    wanted = Filter(**filters)
    names = [item.task_id for item in store.letters.find(wanted, limit=100).letters]
    assert store.counts.letters(wanted) == len(names)
    return names


def walk(store, wanted: Filter, limit: int) -> list[str]:
    names, after = [], None
    while True:
        page = store.letters.find(wanted, limit=limit, after=after)
        names += [item.task_id for item in page.letters]
        after = page.next
        if after is None:
            return names


def test_the_newest_failure_comes_first(store):
    store.letters.save([at("a", 1), at("b", 3), at("c", 2)])
    assert found(store) == ["b", "c", "a"]


@pytest.mark.clear("it compares letters with their key")
def test_a_listed_letter_has_what_a_list_shows(store):
    whole = letter("0d3f", tags=("x",))
    store.letters.save([whole])
    (listed,) = store.letters.find(Filter()).letters
    bare = envelope("0d3f", body=b"", headers={}, properties={})
    assert listed == whole.with_(attempts=(), attempt_count=1, traceback="", envelope=bare)


def test_an_empty_store_is_one_empty_page(store):
    page = store.letters.find(Filter())
    assert (page.letters, page.next) == ((), None)


@pytest.mark.parametrize("limit", [1, 2, 3, 7])
def test_pages_lose_and_repeat_nothing_where_times_tie(store, limit):
    store.letters.save([at(f"{number:02}", number // 5) for number in range(14)])
    names = walk(store, Filter(), limit)
    assert names == [f"{number:02}" for number in (*range(13, -1, -1),)]


def test_pages_hold_letters_of_all_open_states_in_one_order(store):
    store.letters.save([at(f"{number:02}", number) for number in range(9)])
    claim = {"lease_until": minutes(90), "limit": 3, "now": minutes(60)}
    redriving.claim(store, Filter(ids=("01", "04", "07")), token="t", **claim)
    redriving.claim(store, Filter(ids=("02", "05", "08")), token="u", **claim)
    redriving.confirm(store, "u", ["02", "05", "08"])
    assert walk(store, Filter(), 2) == [f"{number:02}" for number in range(8, -1, -1)]


def test_a_page_continues_after_its_mark_when_newer_letters_arrive(store):
    store.letters.save([at("a", 1), at("b", 2), at("c", 3)])
    first = store.letters.find(Filter(), limit=1)
    store.letters.save([at("d", 4)])
    assert [item.task_id for item in store.letters.find(Filter(), after=first.next).letters] == [
        "b",
        "a",
    ]


def test_a_mark_is_microseconds_and_a_number(store):
    store.letters.save([at("a"), at("b", 1 / 60_000_000)])
    micros, _, number = store.letters.find(Filter(), limit=1).next.partition(".")
    assert int(micros) == int(T0.timestamp()) * 1_000_000 + 1
    assert number.isdigit()


@pytest.mark.parametrize("mark", ["", "x", "1", "1.2.3", "1.x", "9" * 400 + ".1", "٣.x"])
def test_a_text_that_is_not_a_cursor_is_refused(store, mark):
    with pytest.raises(FilterError, match=r"not a cursor.*start again without --after"):
        store.letters.find(Filter(), after=mark)


def test_without_a_state_the_open_letters_are_meant(store):
    store.letters.save([at("dead"), at("resolved"), at("discarded")])
    ran = Outcome(task_id="resolved", redrive=0, succeeded_at=minutes(1), worker="w")
    store.letters.record_outcomes([ran])
    store.closing.discard(Filter(ids=("discarded",)), who="ann", why="", now=minutes(1))
    assert found(store) == ["dead"]
    assert found(store, states=frozenset({State.RESOLVED})) == ["resolved"]
    assert sorted(found(store, states=ALL)) == ["dead", "discarded", "resolved"]


@pytest.fixture
def shop(store):
    store.letters.save(
        [
            at(
                "a",
                0,
                task="shop.charge",
                exception_type="shop.errors.Declined",
                fingerprint="aa11",
            ),
            at("b", 1, task="bank.charge", exception_type="Declined", fingerprint="aa22"),
            at("c", 2, task="shop.recharge", exception_type="UnDeclined", fingerprint="bb33"),
            at("d", 3, task="charge", exception_type="ValueError", fingerprint="a_44"),
        ]
    )
    return store


@pytest.mark.parametrize(
    ("filters", "names"),
    [
        ({"task": "shop.charge"}, "a"),
        ({"task": "charge"}, "abd"),
        ({"task": "Charge"}, ""),
        ({"task": "arge"}, ""),
        ({"task": "%charge"}, ""),
        ({"task": "c_arge"}, ""),
        ({"task": "hop.charge"}, ""),
        ({"exception": "Declined"}, "ab"),
        ({"exception": "errors.Declined"}, "a"),
        ({"exception": "declined"}, ""),
        ({"group": "aa"}, "ab"),
        ({"group": "aa11"}, "a"),
        ({"group": "a_"}, "d"),
        ({"group": "AA"}, ""),
        ({"group": "%"}, ""),
        ({"ids": ("a", "c", "nobody")}, "ac"),
        ({"since": minutes(1)}, "bcd"),
        ({"until": minutes(1)}, "a"),
        ({"since": minutes(1), "until": minutes(2)}, "b"),
        ({"task": "charge", "exception": "Declined", "since": minutes(1)}, "b"),
    ],
)
def test_filters_by_name_group_id_and_time(shop, filters, names):
    assert sorted(found(shop, **filters)) == sorted(names)


def test_filters_by_reason_queue_and_worker(store):
    store.letters.save(
        [
            at("a", reason=Reason.TIMEOUT, worker="celery@host1"),
            at("b", worker="celery@host12", envelope=envelope(queue="video")),
            at("c", worker="Celery@host1", envelope=envelope(queue="Video")),
        ]
    )
    assert found(store, reason=Reason.TIMEOUT) == ["a"]
    assert found(store, queue="video") == ["b"]
    assert sorted(found(store, worker="celery@host1")) == ["a", "b"]
    assert found(store, worker="celery@host12") == ["b"]
    assert found(store, worker="celery%") == []


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("card declined", "a"),
        ("CARD Declined", "a"),
        ("100%", "a"),
        ("100_", ""),
        ("timeouterror", "b"),
        ("shop.ship", "b"),
        ("berlin", "c"),
        ("strasse", "d"),
        ("KÖNIG", "c"),
        ('say "hi"', "d"),
        ("back\\slash", "d"),
        ("a/b", "d"),
        ("nowhere", ""),
    ],
)
def test_search_reads_message_names_and_arguments_literally(store, text, names):
    store.letters.save(
        [
            at("a", message="Card declined: 100% sure"),
            at("b", task="shop.ship", exception_type="TimeoutError"),
            at("c", args=[{"city": "Berlin", "street": "Königsweg"}], kwargs={}),
            at(
                "d",
                args=[],
                kwargs={"street": "Strasse", "note": 'say "hi"', "path": "back\\slash a/b"},
            ),
        ]
    )
    assert sorted(found(store, search=text)) == sorted(names)


def test_a_count_over_groups_alone_is_what_a_listing_shows(shop):
    shop.closing.discard(Filter(ids=("a",)), who="ann", why="", now=minutes(1))
    assert found(shop, task="charge") == ["d", "b"]
    assert found(shop) == ["d", "c", "b"]


def test_letters_are_counted_by_task_within_a_filter(shop):
    shop.letters.save([at("e", 9, task="shop.charge", envelope=envelope(queue="slow"))])
    assert shop.counts.by_task(Filter(task="charge")) == {
        "shop.charge": 2,
        "bank.charge": 1,
        "charge": 1,
    }
    assert list(shop.counts.by_task(Filter(task="charge"))) == [
        "shop.charge",
        "bank.charge",
        "charge",
    ]
    assert shop.counts.by_task(Filter(queue="slow")) == {"shop.charge": 1}
    assert shop.counts.by_task(Filter(states=frozenset({State.RESOLVED}))) == {}


def test_ids_are_matched_by_their_beginning(store):
    store.letters.save([at(name) for name in ("0d3f", "0d4a", "0D3F", "0d%a", "0d_a", "1d3f")])
    assert store.letters.match("0d3") == ["0d3f"]
    assert store.letters.match("0d%") == ["0d%a"]
    assert store.letters.match("0d_") == ["0d_a"]
    assert sorted(store.letters.match("0d")) == ["0d%a", "0d3f", "0d4a", "0d_a"]
    assert store.letters.match("0d", limit=1) == ["0d%a"]
    assert store.letters.match("") == ["0D3F", "0d%a", "0d3f", "0d4a", "0d_a", "1d3f"]
    assert store.letters.match("zz") == []


def test_an_empty_search_of_the_store_is_not_an_error(store):
    assert found(store, task="charge", exception="KeyError", search="x", ids=("a",)) == []


def test_an_unknown_letter_is_none(store):
    assert store.letters.get("nobody") is None


def test_reasons_can_be_left_out(store):
    store.letters.save(
        [at("a", 1), at("b", 2, reason=Reason.POISON), at("c", 3, reason=Reason.TIMEOUT)]
    )
    assert found(store, without_reasons=frozenset({Reason.POISON})) == ["c", "a"]
    assert found(store, without_reasons=frozenset({Reason.POISON, Reason.TIMEOUT})) == ["a"]


def test_the_letters_of_an_operation(store):
    store.letters.save([letter(name) for name in "abc"])
    redriving.claim(
        store,
        Filter(ids=("a", "c")),
        token="one",
        lease_until=minutes(90),
        limit=9,
        now=minutes(60),
    )
    redriving.end(store, "one", ["a", "c"])
    of_it = Filter(operation="one")
    assert {item.task_id for item in store.letters.find(of_it).letters} == {"a", "c"}
    assert store.counts.letters(of_it) == 2
    assert (
        store.counts.letters(Filter(operation="on"))
        == store.counts.letters(Filter(operation="two"))
        == 0
    )
    assert store.counts.letters(Filter(operation="one", states=frozenset({State.DEAD}))) == 0
