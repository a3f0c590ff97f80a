"""The page about the archive's files: its fields are those of the files, and its commands work."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import duckdb
import pytest
from support.stores.archives import FakeStore, a_line, archive_all, lines, segment_id

from celery_dlq.archive.bucket import open_bucket
from celery_dlq.archive.reading import Problem, _schema

PAGE = (Path(__file__).parents[3] / "docs/reference/archive_format.md").read_text(encoding="utf-8")
COMMANDS = re.findall(r"^```sh\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
QUERIES = re.findall(r"^```sql\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)

#: A segment and a letter that the page names.
SEGMENT = "20261129T193500123456-5b7d20aa"
LETTER = "78dcb32b-4a9e-4e54-aa9a-d9c7a81b177e"

needs_programs = pytest.mark.skipif(
    not (shutil.which("zstdcat") and shutil.which("jq")), reason="zstdcat and jq are not installed"
)


@pytest.fixture
def place(tmp_path):
    bucket = open_bucket(f"file://{tmp_path}")
    archive_all(bucket, FakeStore([*lines(4), a_line(5, task_id=LETTER)]), together=3)
    return tmp_path


def output_of(command, place):
    command = command.replace(SEGMENT, segment_id(2))
    done = subprocess.run(
        ["sh", "-ec", command], cwd=place, capture_output=True, text=True, check=True
    )
    assert done.stderr == ""
    return done.stdout.splitlines()


@needs_programs
def test_the_commands_of_the_page_work(place):
    tasks, letter = (output_of(one, place) for one in COMMANDS)
    assert [line.split() for line in tasks] == [["2", "shop.charge"]]
    assert json.loads("\n".join(letter[:-1]))["letter"]["task_id"] == LETTER
    assert letter[-1] == "[]"


def test_the_query_of_the_page_works(place, monkeypatch):
    monkeypatch.chdir(place)
    (query,) = QUERIES
    assert duckdb.execute(query).fetchall() == [("shop.charge", 5)]


def test_every_field_of_a_line_is_named():
    fields = {*a_line(1), *a_line(1)["letter"], *a_line(1)["content"]}
    assert {name for name in fields if f"`{name}`" not in PAGE} == set()


def test_every_problem_and_every_column_is_named():
    names = {problem.value for problem in Problem} | set(_schema(contents=True).names)
    assert {name for name in names if f"`{name}`" not in PAGE} == set()
