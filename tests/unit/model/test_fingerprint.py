import pytest
from hypothesis import given
from hypothesis import strategies as st

from celery_dlq.model.fingerprint import (
    _VARIABLE,
    FingerprintInput,
    fixed_parts,
    normalise,
    own_fingerprint,
    variable_parts,
)
from celery_dlq.model.fingerprint import fingerprint as fingerprint_of


def fingerprint(task, exception_type, frames, message):
    return fingerprint_of(
        FingerprintInput(task=task, exception_type=exception_type, frames=frames, message=message)
    )


FRAMES = ("shop.tasks:charge", "shop.money:parse")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("order 17 not found", "order 99182 not found"),
        ("no user bob@example.org", "no user alice.b@mail.example.com"),
        (
            "row 0d3f1c5e-6b0a-4a55-9f2e-0123456789ab locked",
            "row ffffffff-6b0a-4a55-9f2e-0123456789ab locked",
        ),
        ("KeyError: 'EUX'", "KeyError: 'DMX'"),
        ("connect to 10.0.0.1:5432 failed", "connect to 10.0.0.22:5432 failed"),
        ("at 2026-11-21T12:00:00Z", "at 2025-01-02 03:04:05.123+01:00"),
        ("object at 0x7f12ab", "object at 0x55deadbeef"),
        ("took 1.5 s", "took 22,7 s"),
    ],
)
def test_variable_parts_do_not_split_a_group(one, other):
    assert normalise(one) == normalise(other)


@pytest.mark.parametrize(
    ("one", "other"), [("order not found", "order not paid"), ("dead beef", "dead face")]
)
def test_words_do_split_a_group(one, other):
    assert normalise(one) != normalise(other)


def test_a_message_is_split_into_what_its_group_shares_and_what_it_does_not():
    message = "order 17 of 'ann' declined\nby 10.0.0.1"
    assert fixed_parts(message) == ["order ", " of ", " declined"]
    assert sorted(variable_parts(message)) == ["17", "ann"]
    assert (fixed_parts("17"), fixed_parts("too slow")) == (["", ""], ["too slow"])


def test_each_part_counts():
    base = ("shop.charge", "ValueError", FRAMES, "bad currency")
    prints = {
        fingerprint(*base),
        fingerprint("shop.refund", *base[1:]),
        fingerprint(base[0], "KeyError", *base[2:]),
        fingerprint(*base[:2], ("shop.tasks:charge", "shop.money:format"), base[3]),
        fingerprint(*base[:3], "bad amount"),
    }
    assert len(prints) == 5


def test_only_the_innermost_frames_count():
    deep = tuple(f"lib:{n}" for n in range(50))
    assert fingerprint("t", "E", deep, "m") == fingerprint("t", "E", deep[-5:], "m")


def test_the_recipe_of_version_1_is_frozen():
    assert fingerprint("shop.charge", "ValueError", FRAMES, "bad currency 17") == "299ddefc5ad8352b"


@given(st.text(), st.text(), st.lists(st.text(), max_size=8), st.text())
def test_any_text_has_a_fingerprint_of_16_digits(task, name, frames, message):
    value = fingerprint(task, name, frames, message)
    assert len(value) == 16
    assert int(value, 16) >= 0


@given(st.text(max_size=2_000))
def test_normalising_ends_and_stays_on_one_line(message):
    assert "\n" not in normalise(message)


@given(st.text(st.sampled_from("0xXaf19.-:@+TZ '\"\u0661"), max_size=60))
def test_a_pattern_is_left_out_only_where_it_cannot_match(text):
    for pattern, _, needed in _VARIABLE:
        assert all(needed in match[0] for match in pattern.finditer(text))


def test_the_parts_of_the_built_in_recipe():
    failure = FingerprintInput(
        task="t", exception_type="E", frames=tuple("abcdefg"), message="order 7 is late\nmore"
    )
    assert failure.normalised_message == "order <n> is late"
    assert failure.parts == ("t", "E", *"cdefg", "order <n> is late")


def test_own_fingerprints_are_never_built_in_ones():
    failure = FingerprintInput(task="t", exception_type="E", frames=(), message="m")
    joined = "\x1f".join(failure.parts)
    prints = [
        fingerprint_of(failure), own_fingerprint(failure.parts), own_fingerprint([joined]),
        own_fingerprint(["v1", *failure.parts]), own_fingerprint(["a", "b"]), own_fingerprint(["ab"]),
    ]  # fmt: skip
    assert len(set(prints)) == len(prints)
    assert own_fingerprint(["\ud800", "\x00"]) != own_fingerprint(["\ud801", "\x00"])
