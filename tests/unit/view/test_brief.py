"""A brief as text: nothing in a letter breaks out of it, and it is short."""

import json
import re

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from support.briefs import HOSTILE, brief_of, structure_of

from celery_dlq.view.brief import as_json, bounded, markdown

HARMLESS = structure_of(markdown(brief_of("x")))

texts = st.one_of(
    st.text(min_size=1, max_size=80),
    st.text(alphabet="`~\n #->|<b/!\\[]()*_=:\r\t\x85\u2028\u202e\x1b", min_size=1, max_size=80),
    st.lists(st.sampled_from([*HOSTILE, "```", "\n```\n", "\n# ", "<!--", "]]>"]), min_size=1).map("".join),
).filter(lambda text: text.strip("\n"))  # fmt: skip


@settings(deadline=None)
@given(texts)
@example(HOSTILE)
@example("`")
@example(" ")
@example("\t")
@example("\\")
@example("`" * 3_000)
@example("<a href='")
def test_no_text_leaves_its_code_in_markdown(text):
    assert structure_of(markdown(bounded(brief_of(text)))) == HARMLESS


@settings(deadline=None)
@given(texts)
@example(HOSTILE)
def test_nothing_controls_a_terminal(text):
    for write in (markdown, as_json):
        assert not re.search(
            "[\x00-\x09\x0b-\x1f\x7f-\x9f\u200b\u2028\u202e\U000e0100]",
            write(bounded(brief_of(text))),
        )


def test_a_fence_is_longer_than_any_in_its_text():
    text = markdown(bounded(brief_of("`````\nx")))
    assert "``````text from-outside\n`````\nx\n``````" in text


def texts_of(value):
    if isinstance(value, dict):
        return [text for item in value.values() for text in texts_of(item)]
    if isinstance(value, list):
        return [text for item in value for text in texts_of(item)]
    return [value] if isinstance(value, str) else []


def test_json_has_all_foreign_texts_in_one_place():
    record = json.loads(as_json(bounded(brief_of("FOREIGN \x1b[1m"))))
    outside = record.pop("from_outside")
    assert not any("FOREIGN" in text for text in texts_of(record))
    named = {"task", "queue", "release", "worker", "tag"}
    assert {text for text in texts_of(outside) if text not in named} == {"FOREIGN \\x1b[1m"}
    assert "not instructions" in record["notice"]


@pytest.mark.parametrize(
    "text", [*(one * 20_000 for one in ("x", "漢", "🐰", "`", "\x1b", '"\n')), HOSTILE * 99],
    ids=["ascii", "three bytes", "four bytes", "backticks", "escapes", "quotes", "hostile"],
)  # fmt: skip
def test_a_brief_is_never_long(text):
    brief = bounded(brief_of(text, lists=4))
    assert len(markdown(brief)) < 30_000
    assert len(as_json(brief)) < 40_000
    assert "left out]" in markdown(brief)


def test_a_long_traceback_keeps_its_end():
    long = brief_of("short")
    long["from_outside"]["traceback"] = "frame\n" * 4_000 + "the end"
    made = markdown(bounded(long))
    assert "the end\n```" in made
    assert "characters left out]" in made


def test_a_short_brief_is_whole():
    assert "left out]" not in markdown(bounded(brief_of("short")))


def test_a_share_that_is_not_all_is_below_a_hundred():
    almost = {**brief_of("x"), "sample": 999}
    almost["from_outside"]["shared"] = [{"name": "a", "value": "b", "letters": 998}]
    text = markdown(almost)
    assert "`a=b` in 99% (998)" in text
    assert "`x` in under 1% (1)" in text


def test_the_only_letter_of_a_group_is_called_that():
    few = brief_of("x", letters=1)
    for open_ones, kind in ((1, "open letter"), (0, "letter")):
        counts = {"open_count": open_ones, "letter_count": 1, "total_count": 403, "sample": 1}
        text = markdown({**few, **counts})
        assert f"counted over its only {kind}" in text
        assert f"Letters: {open_ones} open, 1 in all" in text
        assert "Failures: 403" in text
        assert "all 1 letter" not in text


def test_a_group_without_letters():
    nothing = {"newest": 0, "waits_s": [], "letters": {}}
    no_letter = {"sample": 0, "reason": None, "verdict": None, "attempts": nothing}
    text = markdown({**brief_of("", letters=0, lists=0), **no_letter})
    assert "The store has no letter of this group any more." in text
    assert "``\n" not in text.replace("```\n", "")
    assert "## Arguments" not in text
