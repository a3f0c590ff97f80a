import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from celery_dlq.base.codec import read_record, record_of
from celery_dlq.model.fingerprint import (
    _VARIABLE,
    FingerprintInput,
    Grounds,
    fixed_parts,
    fixed_words,
    normalise,
    own_fingerprint,
    variable_parts,
    words_of,
)
from celery_dlq.model.fingerprint import fingerprint as fingerprint_of


def failure(**changes):
    values = {
        "task": "shop.charge", "exception_type": "ValueError", "frames": FRAMES,
        "message": "bad currency", "lines": ("raise ValueError currency",),
    }  # fmt: skip
    return FingerprintInput(**{**values, **changes})


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
    changes = [
        {}, {"task": "shop.refund"}, {"exception_type": "KeyError"}, {"frames": FRAMES[:1]},
        {"lines": ("raise ValueError amount",)}, {"evidence": ("status=404",)},
        {"causes": ("KeyError",)}, {"words": "bad currency"},
    ]  # fmt: skip
    assert len({fingerprint_of(failure(**one)) for one in changes}) == len(changes)


def test_the_message_does_not_count():
    assert fingerprint_of(failure(message="bad amount")) == fingerprint_of(failure())


def test_only_the_innermost_frames_count():
    deep = tuple(f"lib:{n}" for n in range(50))
    assert fingerprint_of(failure(frames=deep)) == fingerprint_of(failure(frames=deep[-5:]))


def test_the_recipe_of_version_2_is_frozen():
    whole = failure(evidence=("status=404",), causes=("KeyError",), words="bad <arg>")
    assert fingerprint_of(whole) == "9d25965d81f0572e"
    assert whole.place == "7cc7910666329194"


def test_a_place_is_the_same_whatever_its_failures_say():
    said = failure(evidence=("status=404",), causes=("KeyError",), words="bad <arg>")
    assert said.place == failure().place
    assert failure(lines=()).place != failure().place


@given(st.text(), st.text(), st.lists(st.text(), max_size=8), st.text())
def test_any_text_has_a_fingerprint_of_16_digits(task, name, frames, words):
    value = fingerprint_of(failure(task=task, exception_type=name, frames=frames, words=words))
    assert len(value) == 16
    assert int(value, 16) >= 0


@pytest.mark.parametrize(
    ("message", "words"),
    [
        ("no customer called Ada Byron, sorry", "no customer called <arg> sorry"),
        ("404 for url https://x.example/users/anna", "<n> for url <path>"),
        ("cannot open C:\\data\\anna.txt (17)", "cannot open <path> (<n>)"),
        ("order 7 is late\nmore", "order <n> is late"),
        ("", ""),
    ],
)
def test_paths_and_the_words_of_arguments_are_variable(message, words):
    assert fixed_words(message, words_of(["ADA", "byron, countess"])) == words


@pytest.mark.parametrize(
    "message", ["x" * 1_000_000, "\x00\x1b[31m\ud800", " ".join(map(str, range(10_000)))]
)
def test_a_hostile_message_has_short_words(message):
    assert len(fixed_words(message, words_of([message[:1_000]]))) <= 500


@given(st.text(max_size=2_000))
def test_normalising_ends_and_stays_on_one_line(message):
    assert "\n" not in normalise(message)


@given(st.text(st.sampled_from("0xXaf19.-:@+TZ '\"\u0661"), max_size=60))
def test_a_pattern_is_left_out_only_where_it_cannot_match(text):
    for pattern, _, needed in _VARIABLE:
        assert all(needed in match[0] for match in pattern.finditer(text))


def test_the_parts_of_the_built_in_recipe():
    found = FingerprintInput(
        task="t", exception_type="E", frames=tuple("abcdefg"), message="order 7 is late\nmore",
        lines=("raise E",), evidence=("errno=2",), causes=("KeyError",),
    )  # fmt: skip
    assert found.normalised_message == "order <n> is late"
    assert found.parts == ("t", "E", *"cdefg", "raise E", "errno=2", "KeyError")


def test_own_fingerprints_are_never_built_in_ones():
    joined = "\x1f".join(failure().parts)
    prints = [
        fingerprint_of(failure()), own_fingerprint(failure().parts), own_fingerprint([joined]),
        own_fingerprint(["v2", *failure().parts]), own_fingerprint(["a", "b"]),
        own_fingerprint(["ab"]), failure().place,
    ]  # fmt: skip
    assert len(set(prints)) == len(prints)
    assert own_fingerprint(["\ud800", "\x00"]) != own_fingerprint(["\ud801", "\x00"])


@pytest.mark.parametrize(
    ("grounds", "words"),
    [
        (
            Grounds(frames=FRAMES, lines=("raise E",), evidence=("status=404",)),
            "by task, exception, 2 own frames, the line that raised and status 404; the message is "
            "not used",
        ),
        (
            Grounds(frames=("json:loads",), is_own=False, causes=("KeyError", "OSError")),
            "by task, exception, 1 library frame and cause KeyError, OSError; the message is not used",
        ),
        (Grounds(needs_message=True), "by task, exception and the fixed words of the message"),
        (Grounds(), "by task and exception; the message is not used"),
        (Grounds(frames=FRAMES, recipe="shop.by_task"), "by the recipe shop.by_task"),
    ],
)
def test_why_a_letter_is_in_its_group(grounds, words):
    assert grounds.in_words() == words
    assert read_record(Grounds, json.loads(json.dumps(record_of(grounds)))) == grounds
