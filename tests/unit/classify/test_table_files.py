"""The files of the built-in table: how they are read, and that mistakes in them are found."""

from configparser import Error

import pytest
from support.errors.synthetic import pretend

from celery_dlq.classify.builtin import table_files
from celery_dlq.classify.builtin.http import curl_code
from celery_dlq.classify.builtin.known import ROWS
from celery_dlq.classify.builtin.stdlib import lasting_copy
from celery_dlq.classify.table import Row
from celery_dlq.model.states import Verdict


@pytest.fixture
def rows_of(tmp_path, monkeypatch):
    """The rows of a file with this text."""
    monkeypatch.setattr(table_files, "_FOLDER", tmp_path)

    def read(text):
        (tmp_path / "shop.ini").write_text(text)
        return table_files.rows_of("shop")

    return read


def test_each_kind_of_row(rows_of):
    rows = rows_of("""
[shop.errors, old.errors]
source: shop/errors.py
# A comment.
shop.busy transient: Busy
    Closed
shop.lost network: Lost
shop.wrapped wrapper (its cause): Wrapped
shop.group group: Group
shop.answer by http.curl_code (code): Answer
shop.copy by stdlib.lasting_copy else network: Copy

[Titles]
source: x.py
shop.usage terminal: x.* y.Wrong
""")
    assert rows == (
        Row(
            "shop.busy",
            ("shop.errors.Busy", "shop.errors.Closed", "old.errors.Busy", "old.errors.Closed"),
            verdict=Verdict.TRANSIENT,
        ),
        _both("shop.lost", "Lost", network=True, depends_on=table_files._DEPENDS_ON["network"]),
        _both("shop.wrapped", "Wrapped", depends_on="its cause"),
        _both("shop.group", "Group", group=True, depends_on=table_files._DEPENDS_ON["group"]),
        _both("shop.answer", "Answer", probe=curl_code, depends_on="code"),
        _both(
            "shop.copy",
            "Copy",
            probe=lasting_copy,
            network=True,
            depends_on=table_files._DEPENDS_ON["network"],
        ),
        Row("shop.usage", ("x.*", "y.Wrong"), verdict=Verdict.TERMINAL),
    )


def test_a_row_gives_values_to_its_probe(rows_of):
    [row] = rows_of(
        "[shop]\nsource: shop.py\nshop.answer by http.listed(code 2 4) (code): Answer\n"
    )
    found = [row.probe(pretend("shop.Answer", code=code)) for code in (2, 3)]
    assert [(one.verdict.value, one.rule, one.evidence) for one in found] == [
        ("transient", "shop.answer", "code=2"),
        ("terminal", "shop.answer", "code=3"),
    ]


def _both(rule, name, **options):
    return Row(rule, (f"shop.errors.{name}", f"old.errors.{name}"), **options)


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("shop.busy passing: Busy", "shop.busy passing.* is not a row"),
        ("shop.busy: Busy", "says no verdict"),
        ("shop.busy transient:", "names no class"),
        ("shop.busy by http.statuscode (x): Busy", "no probe http.statuscode"),
        ("shop.busy by htp.status (x): Busy", "no probe htp.status"),
        ("shop.busy by http.status: Busy", "in words"),
        ("shop.busy wrapper: Busy", "in words"),
    ],
)
def test_mistakes_are_found(rows_of, line, problem):
    with pytest.raises(ValueError, match=problem):
        rows_of(f"[shop]\nsource: shop.py\n{line}\n")


@pytest.mark.parametrize(
    "text", ["[a]\nsource: a\n[a]\nsource: a\n", "[a]\nsource: a\nsource: b\n", "[a]\nbare\n"]
)
def test_a_file_says_nothing_twice(rows_of, text):
    with pytest.raises(Error):
        rows_of(text)


def test_every_section_cites_its_source(rows_of):
    with pytest.raises(ValueError, match="source"):
        rows_of("[shop]\nshop.busy transient: Busy\n")


def test_every_file_is_read():
    assert {path.stem for path in table_files._FOLDER.iterdir()} == set(ROWS)


def test_lines_are_not_too_long():
    for path in table_files._FOLDER.iterdir():
        assert [line for line in path.read_text().splitlines() if len(line) > 120] == []
