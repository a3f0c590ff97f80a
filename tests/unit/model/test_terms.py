from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from celery_dlq.model.fingerprint import normalise, variable_parts
from celery_dlq.model.terms import (
    IN_MESSAGE,
    MESSAGE_LIMIT,
    Term,
    hash_of_path,
    hash_of_value,
    terms_of_arguments,
    terms_of_message,
)

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters(exclude_categories=[])),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=30,
)


def term(path: str, value: str) -> Term:
    return Term(hash_of_value(value), hash_of_path(path))


def test_paths_are_names_and_positions_without_places_in_lists():
    found = terms_of_arguments(
        [7, {"a": 8}], {"order": {"lines": [{"sku": "x"}, {"sku": "y"}]}}, 24
    )
    assert found == {
        term("0", "7"), term("1.a", "8"), term("order.lines.sku", "x"), term("order.lines.sku", "y"),
    }  # fmt: skip


def test_values_that_are_nested_least_come_first():
    assert terms_of_arguments([[["deep"]], ["less deep"]], {"x": "top"}, 2) == {
        term("x", "top"), term("1", "less deep"),
    }  # fmt: skip


def test_equal_values_in_one_place_count_once():
    assert terms_of_arguments([], {"ids": [1] * 50 + [2]}, 2) == {
        term("ids", "1"),
        term("ids", "2"),
    }


@given(JSON, JSON, st.integers(0, 30))
def test_any_arguments_have_a_limited_number_of_values(args, kwargs, limit):
    found = terms_of_arguments(args, kwargs, limit)
    assert len(found) <= limit
    assert all(-(2**63) <= one.value < 2**63 and -(2**31) <= one.path < 2**31 for one in found)
    assert IN_MESSAGE not in {one.path for one in found}


def test_a_message_has_the_values_that_its_group_does_not_have():
    message = "order 4711 of 'ann b' <ann@example.com> at 10.0.0.7:80 since 2026-11-25T10:00:00Z"
    assert set(variable_parts(message)) == {
        "4711", "ann b", "ann@example.com", "10.0.0.7:80", "2026-11-25T10:00:00Z",
    }  # fmt: skip
    assert normalise(message) == "order <n> of <str> <<email>> at <ip> since <time>"


@given(st.text(st.characters(exclude_categories=[])))
def test_any_message_has_a_limited_number_of_values(message):
    assert len(terms_of_message(message)) <= MESSAGE_LIMIT
    assert bool(variable_parts(message)) == (normalise(message) != normalise_nothing(message))


def normalise_nothing(message: str) -> str:
    return message.lstrip().partition("\n")[0][:500].strip()
