"""Charts: their shapes, their labels, and that they are well-formed."""

from xml.etree import ElementTree

import pytest

from celery_dlq.flower.html import charts
from celery_dlq.flower.html.charts import Bin, Part


def drawn(svg):
    """The chart as an element; fails when it is not well-formed."""
    return ElementTree.fromstring(svg)


def fills(svg):
    return [item for item in drawn(svg).iter("rect") if item.get("class") == "dlq-fill"]


def box(svg):
    return [float(number) for number in drawn(svg).get("viewBox").split()]


def test_the_highest_column_fills_the_chart():
    svg = charts.columns([Bin("a", 5), Bin("b", 10), Bin("c", 0)], "Arrivals")
    first, second = fills(svg)
    assert (first.get("height"), first.get("y")) == ("50", "50")
    assert (second.get("height"), second.get("y")) == ("100", "0")
    _, _, width, height = box(svg)
    for shape in fills(svg):
        assert float(shape.get("x")) + float(shape.get("width")) <= width
        assert float(shape.get("y")) + float(shape.get("height")) <= height


def test_even_an_empty_column_has_a_tooltip():
    titles = [
        item.text
        for item in drawn(charts.columns([Bin("a", 1_000), Bin("b", 0)], "")).iter("title")
    ]
    assert titles == ["a: 1,000", "b: 0"]


def test_one_is_never_drawn_as_zero():
    svg = charts.columns([Bin("a", 1), Bin("b", 1_000_000)], "")
    assert float(fills(svg)[0].get("height")) >= 2
    assert float(fills(charts.bar(1, 1_000_000, ""))[0].get("width")) >= 20


@pytest.mark.parametrize(
    ("bins", "label"),
    [
        ([Bin("a", 1), Bin("b", 3)], "Arrivals: 4 in total, at most 3 (b)"),
        ([Bin("a", 0)], "Arrivals: none"),
        ([], "Arrivals: none"),
    ],
)
def test_a_chart_is_an_image_with_a_name(bins, label):
    svg = drawn(charts.columns(bins, "Arrivals"))
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
    assert box(charts.columns([Bin(str(n), n) for n in range(168)], ""))[2] == 168 * 10 - 2


@pytest.mark.parametrize("draw", [
    lambda text: charts.columns([Bin(text, 1)], text),
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
    charts.columns([Bin("a", 1)], "x"), charts.stack([Part("a", 1, "left")], "x"),
    charts.bar(1, 1, "x"), charts.sparkline([1], "x"),
])  # fmt: skip
def test_nothing_is_styled_inline_as_the_policy_forbids_it(svg):
    assert "style=" not in svg
    assert 'preserveAspectRatio="none"' in svg
