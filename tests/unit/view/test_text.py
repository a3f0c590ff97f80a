import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from celery_dlq.view import text


@pytest.mark.parametrize(
    ("hostile", "shown"),
    [
        ("\x1b[31mred\x1b[0m", "\\x1b[31mred\\x1b[0m"),
        ("two\nlines\r\n\ttab", "two\\nlines\\r\\n\\ttab"),
        ("nul\x00bell\x07", "nul\\x00bell\\x07"),
        ("\x9b2J", "\\x9b2J"),
        ("evil\u202egnp.exe", "evil\\u202egnp.exe"),
        ("a\u200bb\ufeff\u2028c", "a\\u200bb\\ufeff\\u2028c"),
        ("tag\U000e0041", "tag\\U000e0041"),
        ("selector\U000e0100", "selector\\U000e0100"),
        ("half \ud800", "half \\ud800"),
        ("[bold]markup[/bold] ünïcode 漢字 🎉", "[bold]markup[/bold] ünïcode 漢字 🎉"),
    ],
)
def test_control_characters_are_escaped(hostile, shown):
    assert text.visible(hostile) == shown


@given(st.text())
def test_nothing_controls_the_terminal(hostile):
    kinds = {unicodedata.category(char) for char in text.visible(hostile)}
    assert not kinds & {"Cc", "Cs", "Zl", "Zp"}


def test_lines_stay_lines_and_are_made_safe_one_by_one():
    assert text.visible_lines("a\r\n\tb\n\x1b[2Jc") == ["a", "    b", "\\x1b[2Jc"]


def test_short_ids_have_eight_characters_or_as_many_as_needed():
    ids = ["0d3f1111-aaaa-1", "0d3f1111-aaaa-2", "77e10000-1111", "abc"]
    assert text.short_ids(ids) == ["0d3f1111-aaaa-1", "0d3f1111-aaaa-2", "77e10000", "abc"]


@given(st.lists(st.text(alphabet="ab-", min_size=1), unique=True))
def test_short_ids_begin_the_whole_ones_and_name_one_each(ids):
    short = text.short_ids(ids)
    for beginning, whole in zip(short, ids, strict=True):
        assert whole.startswith(beginning)
        assert beginning == whole or sum(item.startswith(beginning) for item in ids) == 1


def test_sparklines_draw_zero_lowest_and_one_above_it():
    assert text.sparkline([0, 1, 500, 1000]) == "▁▂▅█"
    assert text.sparkline([0, 0]) == "▁▁"
    assert text.sparkline([]) == ""


def test_bars():
    assert text.bar(10, 10, 5) == "█████"
    assert text.bar(1, 1000, 5) == "█"
    assert text.bar(0, 0, 5) == ""


@pytest.mark.parametrize(
    ("share", "shown"),
    [(0, "0%"), (0.001, "under 1%"), (0.01, "1%"), (0.29, "29%"), (0.998, "99%"), (1, "100%")],
)
def test_a_hundred_percent_means_all(share, shown):
    assert text.percent(share) == shown


def test_words_for_templates():
    assert text.counted(1, "dead letter") == "1 dead letter"
    assert text.counted(1234, "dead letter") == "1,234 dead letters"
    assert text.last_part("shop.tasks.charge") == "charge"
    assert text.last_part("ValueError") == "ValueError"
    assert text.last_part("odd.") == "odd."
    assert text.first_line("\n  first \nsecond") == "first"
    assert text.first_line("") == ""
