"""Letters are found by the values in their arguments and their messages."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
from sqlalchemy import func, select
from support.factories import T0, attempt, letter, parking

from celery_dlq.errors import FilterError
from celery_dlq.model.states import State
from celery_dlq.store.base import Argument, Edit, Filter, ValuesKept
from celery_dlq.store.database import tables
from celery_dlq.store.letters import pages
from celery_dlq.store.rows import terms
from celery_dlq.store.sql import SQLStore

HOSTILE = [
    "plain", "Plain", "pl%in", "pl_in", "pla\\in", "'plain'", '"', "%", "*", "ü", "Ü", "u\u0308",
    "\U0001f430", "nul\x00", "\x00", "\ud800", "a\nb", "[]", "null", "1", "x" * 255,
]  # fmt: skip


def at(task_id: str, number: float = 0, *, args=(), kwargs=(), message="boom", **changes):
    its = {"args": [*args], "kwargs": dict(kwargs), "message": message, **changes}
    return letter(task_id, attempt(minutes=number), **its)


def found(store, **filters) -> list[str]:
    """The ids that match, the newest failure first. There must be as many as the count says."""
    wanted = Filter(**filters)
    names, after = [], None
    while True:
        page = store.letters.find(wanted, limit=3, after=after)
        names += [one.task_id for one in page.letters]
        after = page.next
        if after is None:
            break
    assert store.counts.letters(wanted) == len(names)
    return names


def by_argument(store, text: str, *positions: tuple[str, int]) -> list[str]:
    argument = Argument.read(text)
    return found(
        store, args=(Argument(path=argument.path, value=argument.value, positions=positions),)
    )


def kept(store) -> int:
    """The rows of values."""
    counted = select(func.count()).select_from(tables.term)
    return store.transactions.read(lambda connection: connection.execute(counted).scalar_one())


@pytest.fixture(params=["rare", "frequent"])
def frequency(request, monkeypatch):
    """Whether values are looked up, or each letter is asked for them; and steps are short."""
    monkeypatch.setattr(terms, "RARE", 100 if request.param == "rare" else 0)
    monkeypatch.setattr(pages, "STEP", 2)


def test_arguments_by_name_and_by_position(store, frequency):
    store.letters.save(
        [
            at("a", kwargs={"order": {"id": 4711, "items": [{"sku": "x-1"}, {"sku": "x-2"}]}}),
            at("b", kwargs={"order_id": "4711"}),
            at("c", args=[4711, {"sku": "x-2"}], kwargs={}, task="shop.charge"),
            at("d", args=["mail", 4711], kwargs={}, task="shop.mail"),
            at("e", kwargs={"other": 4711.0, "price": 47.11, "is_new": True, "none": None}),
        ]
    )
    assert by_argument(store, "order.id=4711") == ["a"]
    assert by_argument(store, "order.items.sku=x-2") == ["a"]
    assert by_argument(store, "order_id=4711") == ["b"]
    assert sorted(
        by_argument(store, "order_id=4711", ("shop.charge", 0), ("shop.mail", 1))
    ) == list("bcd")
    assert by_argument(store, "order_id=4711", ("shop.charge", 1), ("shop.mail", 1)) == ["d", "b"]
    assert by_argument(store, "1.sku=x-2") == ["c"]
    assert by_argument(store, "order.sku=x-2", ("shop.charge", 1)) == ["c"]
    assert by_argument(store, "price=47.11") == ["e"]
    assert sorted(found(store, values=("4711",))) == list("abcd")
    assert found(store, values=("4711", "x-1")) == ["a"]
    assert found(store, values=("True",)) == found(store, values=("None",)) == []


def test_values_of_messages(store, frequency):
    store.letters.save(
        [
            at("a", message="order 4711 of ann@example.com failed after 2.5 s"),
            at("b", message="no host 'db-1.example' at 10.0.0.7:5432\nsecond line 99"),
        ]
    )
    assert found(store, values=("4711",)) == ["a"]
    assert found(store, values=("ann@example.com",)) == ["a"]
    assert found(store, values=("2.5",)) == ["a"]
    assert found(store, values=("db-1.example", "10.0.0.7:5432")) == ["b"]
    assert found(store, values=("99",)) == []
    assert by_argument(store, "order=4711") == []


def test_pages_and_other_filters(store, frequency):
    store.letters.save(
        [
            at(
                f"{number:02}",
                number,
                route="odd" if number % 2 else "even",
                args=[number % 3, "all"],
            )
            for number in range(20)
        ]
    )
    newest_first = [f"{number:02}" for number in reversed(range(20))]
    assert found(store, values=("all",)) == newest_first
    assert found(store, values=("all",), route="odd") == newest_first[::2]
    assert found(store, values=("all", "1")) == [one for one in newest_first if int(one) % 3 == 1]
    since, until = T0 + timedelta(minutes=3), T0 + timedelta(minutes=6)
    assert found(store, values=("all",), since=since, until=until) == ["05", "04", "03"]
    assert found(store, values=("all",), worker="celery@another") == []
    assert found(store, values=("all", "2"), search="boom", route="odd") == ["17", "11", "05"]


@pytest.mark.parametrize("value", HOSTILE)
def test_hostile_values(store, value):
    store.letters.save(
        [at("a", kwargs={"x": value, value: {value: "y"}}), at("b", kwargs={"x": "other"})]
    )
    assert found(store, values=(value,)) == (["a"] if value.strip() else [])
    assert by_argument(store, f"x={value}") == ["a"]


def test_a_later_failure_has_other_values_in_its_message(store):
    store.letters.save([at("a", kwargs={"order": 7}, message="after 11 s")])
    store.letters.save([at("a", 5, kwargs={"order": 7}, message="after 22 s")])
    assert found(store, values=("11",)) == []
    assert found(store, values=("22", "7")) == ["a"]
    assert kept(store) == 2


def test_an_edit_changes_the_values_of_the_arguments(store):
    store.letters.save([at("a", kwargs={"order": 7}, message="after 11 s")])
    whole = store.letters.get("a")
    edit = Edit(
        task_id="a", before=whole.envelope, after=whole.envelope, args=[], kwargs={"order": 8}, diff="-7 +8",
        who="ann", why="", at=T0,
    )  # fmt: skip
    assert store.edits.save(edit)
    assert by_argument(store, "order=7") == []
    assert by_argument(store, "order=8") == ["a"]
    assert found(store, values=("11", "8")) == ["a"]


def test_values_go_with_their_letter(store):
    store.letters.save([at("a", kwargs={"order": 7}), at("b", kwargs={"order": 7})])
    store.closing.discard(Filter(values=("7",), ids=("a",)), who="ann", why="", now=T0)
    assert store.deleting.delete(Filter(values=("7",)), who="ann", why="", now=T0) == 1
    assert found(store, values=("7",)) == ["b"]
    assert kept(store) == 1


def test_acts_on_the_letters_with_a_value(store, frequency):
    store.letters.save([at(f"{number}", number, args=[number % 2]) for number in range(8)])
    wanted = Filter(values=("1",), states=frozenset({State.DEAD}))
    assert store.closing.discard(wanted, who="ann", why="", now=T0) == 4
    assert found(store, values=("1",)) == []
    assert len(found(store, values=("0",))) == 4
    assert len(found(store, values=("1",), states=frozenset({State.DISCARDED}))) == 4


def test_a_letter_has_a_limited_number_of_values(store):
    many = {f"key{number}": [{"deep": number}, number + 0.5] for number in range(9_000)}
    store.letters.save([at("a", args=["first"], kwargs=many, message="1 2 3 4 5 6 7 8 9 10 11 12")])
    assert kept(store) == 24 + 8
    assert found(store, values=("first",)) == found(store, values=("22.5",)) == ["a"]
    assert found(store, values=("23.5",)) == found(store, values=("8999",)) == []


@pytest.fixture
def without_values(store):
    """The store, as a process that keeps no values sees it."""
    other = SQLStore(str(store.database.url.render_as_string(hide_password=False)), value_limit=0)
    yield other
    other.close()


def test_letters_without_values_get_them_step_by_step(store, without_values):
    without_values.letters.save([at(f"{number}", number, args=[7]) for number in range(5)])
    store.letters.save([at("5", 5, args=[7])])
    assert found(store, values=("7",)) == ["5"]
    assert store.values.kept().since == T0 + timedelta(minutes=5)
    assert store.values.add(letters=2)
    assert found(store, values=("7",)) == ["5", "4"]
    assert store.values.kept() == ValuesKept(are_kept=True, since=T0 + timedelta(minutes=3))
    while store.values.add(letters=2):
        pass
    assert found(store, values=("7",)) == ["5", "4", "3", "2", "1", "0"]
    assert store.values.kept() == ValuesKept(are_kept=True, since=None)
    assert kept(store) == 6
    assert not store.values.add(letters=2)


def test_an_empty_store_has_all_values(store):
    assert store.values.kept().since is None
    assert not store.values.add(letters=2)
    store.letters.save([at("a")])
    assert store.values.kept().since is None


def test_after_a_time_without_values_all_letters_are_looked_at_again(store, without_values):
    store.letters.save([at("a", args=[7])])
    while store.values.add(letters=2):
        pass
    assert not without_values.values.add(letters=2)
    assert without_values.values.kept() == ValuesKept(are_kept=False, since=None)
    without_values.letters.save([at("b", 1, args=[7])])
    assert store.values.kept().since == T0 + timedelta(minutes=1)
    while store.values.add(letters=2):
        pass
    assert found(store, values=("7",)) == ["b", "a"]


@pytest.mark.on_servers
def test_values_are_added_once_by_several_processes(store, without_values):
    without_values.letters.save([at(f"{number}", number, args=[7]) for number in range(60)])
    url = str(store.database.url.render_as_string(hide_password=False))

    def add() -> None:
        other = SQLStore(url, timeout=60)
        try:
            while other.values.add(letters=3):
                pass
        finally:
            other.close()

    with ThreadPoolExecutor(3) as pool:
        for done in [pool.submit(add) for _ in range(3)]:
            done.result()
    assert len(found(store, values=("7",))) == kept(store) == 60


def test_the_values_of_parked_retries_are_not_kept(store):
    store.parked.park([parking("a", 60)], now=T0)
    with pytest.raises(FilterError, match="use --search for them"):
        found(store, values=("7",), states=frozenset({State.PARKED}))


@pytest.mark.parametrize("value", ["", " ", "x" * 256])
def test_a_value_that_is_not_kept_is_refused(value):
    with pytest.raises(FilterError, match="A value has 1 to 255 characters"):
        Filter(values=(value,))


@pytest.mark.parametrize("text", ["", "order", "=7", "order=", " = "])
def test_an_argument_without_a_name_or_a_value_is_refused(text):
    with pytest.raises(FilterError, match="write its name, =, and its value"):
        Argument.read(text)


def test_a_filter_with_values_is_written_and_read():
    wanted = Filter(
        args=(Argument(path="order", value="7", positions=(("shop.charge", 0),)),),
        values=("8", "9"),
    )
    assert Filter.from_dict(wanted.to_dict()) == wanted
