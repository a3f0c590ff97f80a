"""Values are encrypted with the first key, read with any, and only in their place."""

from __future__ import annotations

import base64
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from celery_dlq.base.sealing import (
    Keyring,
    PersonKey,
    is_sealed,
    marked_clear,
    person_in,
    read_keys,
    without_mark,
)
from celery_dlq.errors import ContentsSealed, SettingsError

OLD, NEW = b"o" * 32, b"n" * 32
PLACE = "4711/body"


def ring(**keys: bytes) -> Keyring:
    return Keyring(keys or {"new": NEW, "old": OLD})


def old_hash() -> str:
    """The beginning of the hash of a key, which ends its label."""
    return ring(old=OLD).label.rpartition(".")[2]


@given(st.text(alphabet=st.characters(codec=None, categories=None)))
def test_every_text_comes_back(text: str) -> None:
    sealed = ring().seal(text, PLACE)
    assert is_sealed(sealed)
    assert sealed.isascii()
    assert ring().open(sealed, PLACE) == text


@given(st.binary())
def test_bytes_come_back_and_are_not_in_the_sealed_value(value: bytes) -> None:
    sealed = ring().seal(value, PLACE)
    assert is_sealed(sealed)
    assert len(value) < 4 or value not in sealed[12:]
    assert ring().open(sealed, PLACE) == value


def test_a_ring_whose_first_key_is_another_one_still_reads() -> None:
    sealed = ring(old=OLD).seal(b"4711", PLACE)
    assert ring(new=NEW, old=OLD).open(sealed, PLACE) == b"4711"
    assert old_hash() in sealed.hex()
    assert ring(new=NEW, old=OLD).label != ring(old=OLD).label


def test_a_ring_without_the_key_names_it_by_its_hash() -> None:
    sealed = ring(old=OLD).seal(b"4711", PLACE)
    with pytest.raises(ContentsSealed, match=old_hash()):
        ring(new=NEW).open(sealed, PLACE)


def test_another_key_with_the_same_name_has_another_label() -> None:
    assert ring(key=OLD).label != ring(key=NEW).label
    with pytest.raises(ContentsSealed, match="not in dlq_encryption_keys"):
        ring(key=NEW).open(ring(key=OLD).seal(b"4711", PLACE), PLACE)


def test_a_value_cannot_be_read_in_another_place() -> None:
    sealed = ring().seal(b"4711", PLACE)
    with pytest.raises(ContentsSealed, match="moved here"):
        ring().open(sealed, "4712/body")


@pytest.mark.parametrize("at", range(0, 130, 7))
def test_a_value_of_which_one_bit_was_changed_cannot_be_read(at: int) -> None:
    sealed = bytearray(ring().seal(b"the contents of a letter", PLACE))
    sealed[at] ^= 1
    with pytest.raises(ContentsSealed):
        ring().open(bytes(sealed), PLACE)


@pytest.mark.parametrize("size", [0, 3, 4, 11, 40, 80, 99])
def test_a_value_that_was_cut_cannot_be_read(size: int) -> None:
    with pytest.raises(ContentsSealed):
        ring().open(ring().seal(b"the contents", PLACE)[:size], PLACE)


def test_text_that_is_not_sealed_is_refused() -> None:
    with pytest.raises(ContentsSealed):
        ring().open("dlq-sealed:%%%", PLACE)


@pytest.mark.parametrize(
    "value", ["dlq-sealed:", b"\x89dlq sealed", "no room", b"", "dlq-sealed:=x"]
)
def test_a_clear_value_is_marked_only_if_it_may_look_sealed(value: str | bytes) -> None:
    for one in (value, ring().seal(value, PLACE)):
        marked = marked_clear(one)
        assert not is_sealed(marked)
        assert without_mark(marked) == one
        assert person_in(marked) is None
    assert (marked_clear(value) == value) == (value in ("no room", b""))


def test_a_sealed_value_names_its_person() -> None:
    person = PersonKey(b"p" * 16, b"s" * 32)
    for value in ("4711", b"4711"):
        assert person_in(ring().seal(value, PLACE, person)) == person.id
        assert person_in(ring().seal(value, PLACE)) is person_in(value) is None


def test_a_person_s_value_needs_the_key_of_the_person() -> None:
    person = PersonKey(b"p" * 16, b"s" * 32)
    sealed = ring().seal(b"4711", PLACE, person)
    known = {person.id: person.secret}
    assert ring().open(sealed, PLACE, known.get) == b"4711"
    assert all(one.rpartition(".")[2] not in sealed.hex() for one in ring().labels)
    with pytest.raises(ContentsSealed, match="destroyed"):
        ring().open(sealed, PLACE)


def test_a_ring_can_be_pickled_and_does_not_show_its_keys() -> None:
    one = ring()
    assert pickle.loads(pickle.dumps(one)).open(one.seal(b"4711", PLACE), PLACE) == b"4711"
    assert "s" * 32 not in repr(PersonKey(b"p" * 16, b"s" * 32))


def test_a_process_makes_a_new_key_before_one_seals_too_many_values(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("celery_dlq.base.sealing._VALUES_PER_KEY", 2)
    one = ring()
    sealed = [one.seal(b"4711", PLACE) for _ in range(5)]
    assert len({value[:80] for value in sealed}) == 3
    assert {one.open(value, PLACE) for value in sealed} == {b"4711"}


def test_keys_are_base64_of_either_alphabet_or_bytes() -> None:
    key = b"\xfb\xff" * 16
    forms = base64.b64encode(key).decode(), base64.urlsafe_b64encode(key).decode(), key
    assert [read_keys({"a": form}) for form in forms] == [{"a": key}] * 3


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({}, "at least one key"),
        ([OLD], "not a dict"),
        ({"": OLD}, "a name"),
        ({7: OLD}, "a name"),
        ({"@a": OLD}, "a name"),
        ({"a": "c2hvcnQ="}, "not 32 bytes"),
        ({"a": "%"}, "not 32 bytes"),
        ({"a": 32}, "not 32 bytes"),
        ({"a": None}, "not 32 bytes"),
        ({"a": OLD, "b": OLD}, "two names"),
    ],
)
def test_wrong_keys_are_refused_with_the_reason(given: object, why: str) -> None:
    with pytest.raises(SettingsError, match=why) as caught:
        read_keys(given)
    assert "oooo" not in str(caught.value)
