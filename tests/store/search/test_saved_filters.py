"""Filters are saved under a name for all, audited, and bounded."""

from __future__ import annotations

import pytest

from celery_dlq.errors import FilterError
from celery_dlq.store import saved_filters

OVERDUE = {"task": ["shop.charge"], "since": ["2h"], "state": ["dead", "parked"]}


def acts(store, act: str):
    return [(row.who, row.detail["saved_as"]) for row in store.audit.find(act=act).rows]


def test_a_saved_filter_is_read_as_it_was_given(store):
    before = store.now()
    store.saved_filters.save(" overdue   charges ", OVERDUE, who="ann")
    (one,) = store.saved_filters.read()
    assert (one.name, one.fields, one.who) == ("overdue charges", OVERDUE, "ann")
    assert abs((one.at - before).total_seconds()) < 60
    assert acts(store, "save-filter") == [("ann", "overdue charges")]


def test_filters_are_in_the_order_of_their_names(store):
    for name in ("b", "a", "c"):
        store.saved_filters.save(name, OVERDUE, who="ann")
    assert [one.name for one in store.saved_filters.read()] == ["a", "b", "c"]


def test_saving_the_same_again_changes_nothing(store):
    store.saved_filters.save("mine", OVERDUE, who="ann")
    store.saved_filters.save("mine", OVERDUE, who="bob")
    assert [one.who for one in store.saved_filters.read()] == ["ann"]
    assert acts(store, "save-filter") == [("ann", "mine")]


def test_another_filter_does_not_replace_one_of_the_same_name(store):
    store.saved_filters.save("mine", OVERDUE, who="ann")
    with pytest.raises(FilterError, match="Another filter is saved as 'mine'; remove it"):
        store.saved_filters.save("mine", {"task": ["shop.mail"]}, who="bob")
    assert [one.fields for one in store.saved_filters.read()] == [OVERDUE]


def test_a_removed_filter_is_gone(store):
    store.saved_filters.save("mine", OVERDUE, who="ann")
    assert store.saved_filters.remove("mine", OVERDUE, who="bob")
    assert not store.saved_filters.remove("mine", OVERDUE, who="bob")
    assert store.saved_filters.read() == []
    assert acts(store, "remove-filter") == [("bob", "mine")]


def test_a_new_filter_of_the_same_name_is_not_removed_by_a_page_that_shows_the_old_one(store):
    store.saved_filters.save("mine", {"task": ["shop.mail"]}, who="bob")
    assert not store.saved_filters.remove("mine", OVERDUE, who="ann")
    assert [one.who for one in store.saved_filters.read()] == ["bob"]


@pytest.mark.parametrize(
    ("name", "fields", "said"),
    [
        ("  ", OVERDUE, "has no name"),
        ("n" * 65, OVERDUE, "at most 64 characters"),
        ("a\x00b", OVERDUE, "all of them visible"),
        ("a\u202eb", OVERDUE, "all of them visible"),
        ("mine", {}, "has no values"),
        ("mine", {"search": ["x" * 4_001]}, "more than 4,000 characters"),
    ],
)
def test_a_filter_that_does_not_fit_is_refused(store, name, fields, said):
    with pytest.raises(FilterError, match=said):
        store.saved_filters.save(name, fields, who="ann")
    assert store.saved_filters.read() == []


def test_the_number_of_filters_is_bounded(store, monkeypatch):
    monkeypatch.setattr(saved_filters, "MOST", 2)
    for name in ("a", "b"):
        store.saved_filters.save(name, OVERDUE, who="ann")
    with pytest.raises(FilterError, match="2 filters are saved already; remove one first"):
        store.saved_filters.save("c", OVERDUE, who="ann")


def test_hostile_names_and_values_are_kept(store):
    fields = {"search": ["'; DROP TABLE x --", "<b>", "ключ 🔑"]}
    store.saved_filters.save("'; <script> 🔑", fields, who="x" * 300)
    (one,) = store.saved_filters.read()
    assert (one.name, one.fields) == ("'; <script> 🔑", fields)


def test_the_values_of_erased_letters_go_with_them(store):
    fields = {"arg": ["user_id=ann@example.org"], "value": ["ann@example.org"], "task": ["pay"]}
    store.saved_filters.save("hers", fields, who="bob")
    mentions = store.erasing.mentions(["ann@example.org"])
    assert {one.place for one in mentions} == {
        "celery_dlq_audit.detail", "celery_dlq_saved_filter.fields",
    }  # fmt: skip
    assert store.erasing.replace_texts(mentions) == 2
    (one,) = store.saved_filters.read()
    assert one.fields == {"arg": ["user_id=[erased]"], "value": ["[erased]"], "task": ["pay"]}
    assert store.erasing.mentions(["ann@example.org"]) == []


def test_a_filter_with_the_value_in_its_name_goes(store):
    for name in ("of Ada", "of Bob", "Adamant"):
        store.saved_filters.save(name, OVERDUE, who="bob")
    store.saved_filters.remove("of Bob", OVERDUE, who="bob")
    store.erasing.replace_texts(store.erasing.mentions(["Ada"]))
    assert [one.name for one in store.saved_filters.read()] == ["Adamant"]
    names = [row.detail["saved_as"] for row in store.audit.find(act="save-filter").rows]
    assert names == ["Adamant", "of Bob", "of [erased]"]
