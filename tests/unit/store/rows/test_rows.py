from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.factories import T0, attempt, letter

from celery_dlq.model.letter import Attempt
from celery_dlq.model.states import State
from celery_dlq.store.database import tables
from celery_dlq.store.rows.rows import (
    TEXT_LIMIT,
    attempt_row,
    fit,
    letter_from,
    letter_row,
    part_of,
    read_row,
    storable,
    stored_id,
)

anything = st.text(st.characters(exclude_categories=[]), max_size=300)


def test_a_letter_comes_back_from_its_row():
    whole = letter("0d3f", tags=("a", "b"), redrive_count=2)
    row = letter_row(whole)
    assert letter_from(row, [attempt_row("0d3f", item) for item in whole.attempts]) == whole


def test_a_letter_is_written_as_dead_whatever_it_said():
    held = letter("0d3f", state=State.CLAIMED, claim_token="t", closed_by="me", closed_at=T0)
    row = letter_row(held)
    assert (row["state"], row["claim_token"], row["closed_by"]) == ("dead", None, "")
    assert row["closed_at"] is None


def test_every_column_but_the_key_and_the_rollup_facts_is_written():
    columns = {*tables.letter.columns.keys(), *tables.content.columns.keys()}
    assert set(letter_row(letter())) == columns - {"id", "last_redrive"}


def test_each_column_but_the_key_is_in_one_of_a_letters_tables():
    shared = {*tables.letter.columns.keys()} & {*tables.content.columns.keys()}
    assert shared == {"id"}
    row = letter_row(letter())
    parts = [part_of(table, row) for table in (tables.letter, tables.content)]
    assert {**parts[0], **parts[1]} == row
    assert "body" in parts[1]


def test_columns_that_were_not_read_come_out_empty():
    row = letter_row(letter("0d3f"))
    for name in ("traceback", "args", "kwargs", "body", "headers", "properties", "tags"):
        del row[name]
    found = letter_from(row)
    assert (found.traceback, found.args, found.kwargs, found.tags) == ("", None, None, ())
    assert (found.envelope.body, found.envelope.headers) == (b"", {})
    assert found.attempts == ()


def test_an_attempt_comes_back_from_its_row():
    run = attempt(3, 1, 5, delay_s=0.25)
    assert read_row(Attempt, attempt_row("0d3f", run)) == run


@pytest.mark.parametrize("delay", [math.nan, math.inf])
def test_a_delay_that_no_column_holds_is_left_out(delay):
    assert attempt_row("0d3f", attempt(delay_s=delay))["delay_s"] is None


def test_an_attempts_message_is_short():
    assert len(attempt_row("0d3f", attempt(message="x" * 9_999))["message"]) <= 500


@given(anything, anything)
def test_two_ids_are_stored_under_two_keys(first, second):
    assert (stored_id(first) == stored_id(second)) is (first == second)


@given(anything)
def test_a_key_fits_its_column_and_is_its_own_key(task_id):
    key = stored_id(task_id)
    assert len(key) <= 255
    assert not key.endswith(" ")
    assert key.encode("utf-8").find(b"\x00") == -1
    assert stored_id(key) == key


def test_an_ordinary_id_is_its_own_key():
    assert (
        stored_id("0d3f5a3e-9a57-4f0e-8d0c-6f3f1f1f1f1f") == "0d3f5a3e-9a57-4f0e-8d0c-6f3f1f1f1f1f"
    )


@given(anything)
def test_whatever_a_text_holds_it_fits_its_column(text):
    row = fit(tables.letter, {"worker": text, "message": text})
    assert len(row["worker"]) <= 255
    for value in row.values():
        assert "\x00" not in value
        value.encode("utf-8")


def test_a_text_without_end_is_cut():
    assert len(fit(tables.letter, {"message": "x" * 2 * TEXT_LIMIT})["message"]) == TEXT_LIMIT


def test_json_is_never_cut():
    row = letter_row(letter("0d3f", args=["x" * 2 * TEXT_LIMIT]))
    assert letter_from(row).args == ["x" * 2 * TEXT_LIMIT]


def test_a_letter_that_fits_is_stored_as_it_is():
    fitting = letter("0d3f", attempt(1), attempt(2))
    assert storable(fitting) is fitting


def test_numbers_beyond_a_column_are_bounded():
    forged = letter("0d3f", attempt(10**30, -5), redrive_count=10**20)
    stored = storable(forged)
    assert stored.redrive_count == 2**31 - 1
    assert (stored.attempts[0].number, stored.attempts[0].redrive) == (2**31 - 1, 0)


def test_the_fields_of_a_short_letter_do_not_alias_the_long_one():
    long_id = "x" * 400
    assert storable(letter(long_id)).task_id == stored_id(long_id)
    assert storable(replace(letter(), task_id="plain")).task_id == "plain"
