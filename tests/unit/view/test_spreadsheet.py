"""Records as CSV."""

import csv
import io

import pytest

from celery_dlq.view.records import csv_lines


def read(rows):
    return list(csv.reader(io.StringIO("\n".join(csv_lines(rows)))))


def test_the_first_line_has_the_names():
    rows = [{"id": "a", "count": 1}, {"id": "b", "count": None}]
    assert read(rows) == [["id", "count"], ["a", "1"], ["b", ""]]


def test_without_rows_there_is_no_line():
    assert csv_lines([]) == []


@pytest.mark.parametrize(
    "text",
    [
        "=1+1",
        "+1",
        "-1",
        "@SUM(A1)",
        "\uff1d1",
        "\uff0b1",
        "\uff0d1",
        "\uff20A1",
        " =1",
        "  +1",
        "\u00a0=1",
        "\u3000\uff1d1",
    ],
)
def test_a_text_that_a_spreadsheet_would_evaluate_is_defused(text):
    assert read([{"text": text}])[1:] == [["'" + text]]


@pytest.mark.parametrize("text", ["\t=1", "\r\n=1", "\x00=1"])
def test_no_cell_begins_with_a_character_that_a_spreadsheet_would_skip(text):
    _titles, [cell] = read([{"text": text}])
    assert cell.startswith("\\")


def test_a_negative_number_stays_a_number():
    assert read([{"number": -1}])[1:] == [["-1"]]


def test_a_row_is_one_line_whatever_its_texts_contain():
    assert len(csv_lines([{"text": 'a "b"\nc,\r\u2028d'}])) == 2
