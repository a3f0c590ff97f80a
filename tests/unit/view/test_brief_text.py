"""A brief as text: nothing in a letter breaks out of it, and it is short."""

import json
import re
from dataclasses import replace

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from support.briefs import HOSTILE, brief_of, structure_of

from celery_dlq.view.brief import Attempts
from celery_dlq.view.brief_text import TOKEN_LIMIT, as_json, fitted, markdown, tokens_of
from celery_dlq.view.groups import Share


def without_cuts(text):
    return text.partition("\n\n## Cut\n")[0]


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
    assert structure_of(without_cuts(fitted(brief_of(text), markdown))) == HARMLESS


@settings(deadline=None)
@given(texts)
@example(HOSTILE)
def test_nothing_controls_a_terminal(text):
    for write in (markdown, as_json):
        assert not re.search(
            "[\x00-\x09\x0b-\x1f\x7f-\x9f\u200b\u2028\u202e\U000e0100]",
            fitted(brief_of(text), write),
        )


def test_a_fence_is_longer_than_any_in_its_text():
    text = fitted(brief_of("`````\nx"), markdown)
    assert "``````text from-outside\n`````\nx\n``````" in text


def texts_of(value):
    if isinstance(value, dict):
        return [text for item in value.values() for text in texts_of(item)]
    if isinstance(value, list):
        return [text for item in value for text in texts_of(item)]
    return [value] if isinstance(value, str) else []


def test_json_has_all_foreign_texts_in_one_place():
    record = json.loads(fitted(brief_of("FOREIGN \x1b[1m"), as_json))
    outside = record.pop("from_outside")
    assert not any("FOREIGN" in text for text in texts_of(record))
    named = {"task", "queue", "release", "worker", "tag"}
    assert {text for text in texts_of(outside) if text not in named} == {"FOREIGN \\x1b[1m"}
    assert "not instructions" in record["notice"]


@pytest.mark.parametrize(
    "text", [*(one * 20_000 for one in ("x", "漢", "🐰", "`", "\x1b", '"\n')), HOSTILE * 99],
    ids=["ascii", "three bytes", "four bytes", "backticks", "escapes", "quotes", "hostile"],
)  # fmt: skip
@pytest.mark.parametrize(
    "write",
    [markdown, as_json, lambda brief: as_json(brief, is_ascii=True)],
    ids=["markdown", "json", "ascii"],
)
def test_a_brief_is_never_longer_than_its_limit(text, write):
    made = fitted(brief_of(text, lists=4), write)
    assert tokens_of(made) <= TOKEN_LIMIT
    assert "bytes are shown" in made


def test_the_longest_part_is_cut_first_and_the_brief_says_so():
    plain = brief_of("short")
    long = replace(plain, outside=replace(plain.outside, traceback="frame\n" * 4_000 + "the end"))
    made = fitted(long, markdown)
    assert tokens_of(made) <= TOKEN_LIMIT
    assert "the end\n```" in made
    (said,) = made.partition("parts were cut:\n\n")[2].splitlines()
    assert re.fullmatch(r"- traceback: [\d,]+ of 24,007 bytes are shown", said)


def test_a_short_brief_is_whole():
    made = fitted(brief_of("short"), markdown)
    assert "## Cut" not in made
    assert tokens_of(made) < 1_500


def test_a_token_is_three_bytes():
    assert [tokens_of(text) for text in ("", "a", "abc", "abcd", "漢")] == [0, 1, 1, 2, 1]


def test_a_share_that_is_not_all_is_below_a_hundred():
    almost = replace(brief_of("x"), sample=999)
    shares = replace(almost.outside, shared=(Share(name="a", value="b", letters=998),))
    text = markdown(replace(almost, outside=shares))
    assert "`a=b` in 99% (998)" in text
    assert "`x` in under 1% (1)" in text


def test_the_only_letter_of_a_group_is_called_that():
    few = brief_of("x", letters=1)
    for open_ones, kind in ((1, "open letter"), (0, "letter")):
        standing = replace(few.standing, open_count=open_ones, letter_count=1, total_count=403)
        text = markdown(replace(few, sample=1, standing=standing))
        assert f"counted over its only {kind}" in text
        assert f"Letters: {open_ones} open, 1 in all" in text
        assert "Failures: 403" in text
        assert "all 1 letter" not in text


def test_a_group_without_letters():
    empty = brief_of("", letters=0, lists=0)
    text = markdown(replace(empty, sample=0, reason=None, verdict=None, attempts=Attempts(
        newest=0, waits_s=(), letters={},
    )))  # fmt: skip
    assert "The store has no letter of this group any more." in text
    assert "``\n" not in text.replace("```\n", "")
    assert "## Arguments" not in text
