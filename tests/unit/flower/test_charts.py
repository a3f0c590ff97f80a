"""Charts: their shapes, their labels, and that they are well-formed."""

from datetime import timedelta
from xml.etree import ElementTree

import pytest
from support.factories import T0

from celery_dlq.flower import charts
from celery_dlq.flower.charts import Bin, Part


def bins(*counts):
    """A column for each hour from noon on."""
    return [
        Bin(T0 + timedelta(hours=place), T0 + timedelta(hours=place + 1), count)
        for place, count in enumerate(counts)
    ]


def drawn(svg):
    """The chart as an element; fails when it is not well-formed."""
    return ElementTree.fromstring(svg)


def fills(svg):
    return [item for item in drawn(svg).iter("rect") if item.get("class") == "dlq-fill"]


def box(svg):
    return [float(number) for number in drawn(svg).get("viewBox").split()]


def test_the_highest_column_fills_the_chart():
    svg = charts.columns(bins(5, 10, 0), "Arrivals")
    first, second = fills(svg)
    assert (first.get("height"), first.get("y")) == ("50", "50")
    assert (second.get("height"), second.get("y")) == ("100", "0")
    _, _, width, height = box(svg)
    for shape in fills(svg):
        assert float(shape.get("x")) + float(shape.get("width")) <= width
        assert float(shape.get("y")) + float(shape.get("height")) <= height


def test_even_an_empty_column_has_a_tooltip():
    titles = [item.text for item in drawn(charts.columns(bins(1_000, 0), "")).iter("title")]
    assert titles == [
        "21 Nov 12:00 to 13:00 UTC: 1,000 letters",
        "21 Nov 13:00 to 14:00 UTC: 0 letters",
    ]


def test_a_column_has_its_time_for_scripts():
    [column] = drawn(charts.columns(bins(1), "")).iter("g")
    assert column.get("data-since") == "2026-11-21T12:00:00+00:00"
    assert column.get("data-until") == "2026-11-21T13:00:00+00:00"
    assert column.get("data-said") == "1 letter"


@pytest.mark.parametrize(
    ("most", "expected"),
    [
        (0, (1, 2)), (1, (1, 2)), (2, (1, 2)), (3, (2, 4)), (9, (5, 10)), (10, (5, 10)), (11, (10, 20)),
        (41, (30, 60)), (100, (50, 100)), (7_001, (4_000, 8_000)),
    ],
)  # fmt: skip
def test_a_scale_has_round_numbers(most, expected):
    assert charts.scale(most) == expected


def test_columns_are_drawn_on_the_scale():
    [shape] = fills(charts.columns(bins(15), ""))
    assert shape.get("height") == "75"


def test_one_is_never_drawn_as_zero():
    svg = charts.columns(bins(1, 1_000_000), "")
    assert float(fills(svg)[0].get("height")) >= 2
    assert float(fills(charts.bar(1, 1_000_000, ""))[0].get("width")) >= 20


@pytest.mark.parametrize(
    ("counts", "label"),
    [
        ([1, 3], "Arrivals: 4 in total, at most 3 (21 Nov 13:00 to 14:00 UTC)"),
        ([0], "Arrivals: none"),
        ([], "Arrivals: none"),
    ],
)
def test_a_chart_is_an_image_with_a_name(counts, label):
    svg = drawn(charts.columns(bins(*counts), "Arrivals"))
    assert (svg.get("role"), svg.get("aria-label")) == ("img", label)


def test_the_pieces_of_a_stack_fill_it_without_a_gap():
    svg = charts.stack(
        [Part("good", 997, "succeeded"), Part("none", 0, "left"), Part("bad", 3, "failed")],
        "Letters",
    )
    pieces = list(drawn(svg).iter("rect"))
    assert [piece.get("class") for piece in pieces] == ["dlq-part-succeeded", "dlq-part-failed"]
    ends = [float(piece.get("x")) + float(piece.get("width")) for piece in pieces]
    assert ends[0] == pytest.approx(float(pieces[1].get("x")), abs=0.02)
    assert ends[1] == pytest.approx(charts.LENGTH, abs=0.02)
    assert float(pieces[1].get("width")) > 10, "what is small can be seen"
    assert drawn(svg).get("aria-label") == "Letters: good 997, bad 3"


def test_an_empty_stack_is_empty():
    svg = charts.stack([Part("good", 0, "succeeded")], "Letters")
    assert list(drawn(svg).iter("rect")) == []
    assert drawn(svg).get("aria-label") == "Letters: 0"


def test_a_sparkline_has_a_column_for_each_count():
    svg = charts.sparkline([0, 1, 2], "3 letters")
    assert [item.get("x") for item in fills(svg)] == ["10", "20"]
    assert drawn(svg).get("aria-label") == "3 letters"
    assert fills(charts.sparkline([], "")) == []


def test_all_columns_of_a_week_fit():
    assert box(charts.columns(bins(*range(168)), ""))[2] == 168 * 10 - 2


@pytest.mark.parametrize("draw", [
    lambda text: charts.columns(bins(1), text),
    lambda text: charts.stack([Part(text, 1, "left")], text),
    lambda text: charts.bar(1, 1, text),
    lambda text: charts.sparkline([1], text),
])  # fmt: skip
def test_hostile_names_stay_text(draw):
    svg = draw('</title></svg><script>alert(1)</script>"\x00\u202e')
    assert "<script" not in svg
    assert "\x00" not in svg
    assert "\u202e" not in svg
    assert drawn(svg).tag == "svg"


@pytest.mark.parametrize("svg", [
    charts.columns(bins(1), "x"), charts.stack([Part("a", 1, "left")], "x"),
    charts.bar(1, 1, "x"), charts.sparkline([1], "x"),
])  # fmt: skip
def test_nothing_is_styled_inline_as_the_policy_forbids_it(svg):
    assert "style=" not in svg
    assert 'preserveAspectRatio="none"' in svg
