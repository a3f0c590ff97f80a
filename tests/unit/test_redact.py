import json
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from celery_dlq.redact import (
    ITEM_LIMIT,
    MESSAGE_LIMIT,
    REDACTED,
    STRING_LIMIT,
    Redactor,
    clip,
    clip_middle,
    safe_message,
    safe_repr,
    safe_text,
)

display = Redactor().display


class Unprintable:
    def __repr__(self):
        raise SystemExit("gotcha")


@pytest.mark.parametrize(
    "key",
    ["password", "DB_PASSWORD", "stripe-api-key", "X-Auth-Token", "card number", "client_secret"],
)
def test_values_under_sensitive_keys_are_hidden_at_any_depth(key):
    assert display({"order": [{key: "4711"}]}) == {"order": [{key: REDACTED}]}


def test_further_keys_can_be_named():
    assert Redactor(["Tax-ID"]).display({"tax_id": 1, "name": 2}) == {"tax_id": REDACTED, "name": 2}


def test_plain_values_stay_what_they_are():
    value = {"n": 1, "f": 1.5, "s": "x", "none": None, "yes": True, "list": [1, [2]]}
    assert display(value) == value


def test_values_that_json_cannot_express_become_text():
    shown = display({"nan": float("nan"), "bytes": b"\x00", "big": 10**5000, 3: {1, 2}})
    assert shown["nan"] == "nan"
    assert shown["bytes"] == "b'\\x00'"
    assert shown["3"] == [1, 2]
    json.dumps(shown, allow_nan=False)


def test_size_is_bounded_in_every_direction():
    shown = display(["x" * 10_000, list(range(1_000)), {str(n): n for n in range(1_000)}])
    assert len(shown[0]) <= STRING_LIMIT
    assert len(shown[1]) == ITEM_LIMIT + 1
    assert shown[1][-1].endswith("936 more")
    assert len(shown[2]) == ITEM_LIMIT + 1


def test_depth_cycles_and_sheer_number_are_bounded():
    cycle = []
    cycle.append(cycle)
    wide = [[[0] * 64] * 64] * 64
    assert len(json.dumps(display(cycle))) < 100
    assert len(json.dumps(display(wide))) < 20_000


def test_objects_that_fight_back_are_named():
    assert display([Unprintable()]) == ["<Unprintable: __repr__ raised SystemExit>"]


def test_user_code_is_not_run_beyond_repr():
    @dataclass
    class Account:
        token: str

    assert "Account" in display(Account("t"))


@given(st.recursive(st.none() | st.booleans() | st.floats() | st.text() | st.binary(),
                    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)))  # fmt: skip
def test_every_display_copy_is_strict_json_that_databases_take(value):
    text = json.dumps(display(value), allow_nan=False, ensure_ascii=False)
    assert "\x00" not in text
    text.encode("utf-8")


def test_messages_survive_hostile_exceptions():
    class Rude(Exception):
        def __str__(self):
            raise KeyboardInterrupt

    class Sly(str):
        def __len__(self):
            return 1 / 0

    class Wrapped(Exception):
        def __str__(self):
            return Sly("text")

    assert "KeyboardInterrupt" in safe_message(Rude())
    assert safe_message(Wrapped()) == "text"
    assert len(safe_message(ValueError("x" * 50_000_000))) <= MESSAGE_LIMIT


def test_clipping_says_what_is_missing():
    assert clip("short", 10) == "short"
    cut = clip("x" * 100, 40)
    assert len(cut) <= 40
    assert cut.endswith("[60 more characters]")
    cut = clip_middle("a" * 50 + "b" * 50, 40)
    assert cut.startswith("a" * 20)
    assert cut.endswith("b" * 20)
    assert "60 characters left out" in cut


def test_text_loses_only_what_cannot_be_stored():
    assert safe_text("gr\u00fc\u00df \N{SNOWMAN} ok") == "gr\u00fc\u00df \N{SNOWMAN} ok"
    assert safe_text("a\x00b\ud800c") == "a\\u0000b\\ud800c"
    assert safe_repr({"a": 1}) == "{'a': 1}"
