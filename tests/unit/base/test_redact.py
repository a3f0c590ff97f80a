import json
import re
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from celery_dlq.base.redact import (
    ITEM_LIMIT,
    LONGEST,
    MESSAGE_LIMIT,
    REDACTED,
    STRING_LIMIT,
    Redactor,
    clip,
    clip_middle,
    safe_message,
    safe_repr,
    safe_text,
    text_of,
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
    cut = clip_middle("a" * 9 + "\n" + "b" * 80 + "\n" + "c" * 10, 40)
    assert cut == f"{'a' * 9}\n… [82 characters left out] …\n{'c' * 10}"
    assert clip_middle("a" * 100, 40) == f"{'a' * 20}\n… [80 characters left out] …\n"


def test_text_loses_only_what_cannot_be_stored():
    assert safe_text("gr\u00fc\u00df \N{SNOWMAN} ok") == "gr\u00fc\u00df \N{SNOWMAN} ok"
    assert safe_text("a\x00b\ud800c") == "a\\u0000b\\ud800c"
    assert safe_repr({"a": 1}) == "{'a': 1}"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (4711, "4711"), ("4711", "4711"), (" 4711 ", "4711"), (47.5, "47.5"), (-1, "-1"),
        (10**30, "1" + "0" * 30),
        ("x" * LONGEST, "x" * LONGEST), ("x" * (LONGEST + 1), None), ("", None), (" ", None),
        (True, None), (None, None), ([], None), ("[redacted]", None),
    ],
)  # fmt: skip
def test_the_text_of_a_value(value, text):
    assert text_of(value) == text


class TestStandIns:
    keyed = Redactor(["email"], "a key of mine")

    def test_the_same_secret_has_the_same_one(self):
        one, other = (self.keyed.display({"email": text, "n": 1}) for text in (" ann@x ", "ann@x"))
        assert one == other
        assert re.fullmatch(r"\[redacted:[0-9a-f]{32}\]", one["email"])
        assert one["n"] == 1

    def test_another_secret_or_another_key_has_another_one(self):
        others = [Redactor(["email"], "b").stand_in("ann@x"), self.keyed.stand_in("bob@x")]
        assert len({self.keyed.stand_in("ann@x"), *others}) == 3

    def test_numbers_and_pairs_have_them_too(self):
        assert self.keyed.display([["token", 17]]) == [["token", self.keyed.stand_in("17")]]
        assert self.keyed.display({"pin": {"name": "API_KEY", "value": 1.5}}) == {
            "pin": {"name": "API_KEY", "value": self.keyed.stand_in("1.5")}
        }

    @pytest.mark.parametrize(
        "secret",
        [
            None,
            True,
            "",
            "x" * (LONGEST + 1),
            ["a"],
            {"a": 1},
            b"x",
            pytest.param(10**5000, id="large"),
            Unprintable(),
        ],
    )
    def test_what_people_do_not_look_for_has_none(self, secret):
        assert self.keyed.display({"password": secret}) == {"password": REDACTED}

    def test_a_stand_in_stands_for_itself(self):
        shown = self.keyed.display({"password": "hunter2"})
        assert self.keyed.display(shown) == shown

    def test_without_a_key_there_are_none(self):
        assert Redactor().display({"password": "hunter2"}) == {"password": REDACTED}
        assert Redactor().has_hashes is False
