"""Letters in the spool are counted, and stay there."""

from __future__ import annotations

from datetime import datetime, timezone

from support.factories import letter

from celery_dlq.erasure.matching import Matcher
from celery_dlq.erasure.spooled import SpooledLetters, spooled
from celery_dlq.model.letter import Outcome
from celery_dlq.spool import encode

MATCHER = Matcher(["a"], [], accepted=frozenset(), parameters=lambda _name: None)


def test_files_with_such_letters_are_named(tmp_path):
    outcome = Outcome(task_id="a", redrive=0, succeeded_at=datetime.now(timezone.utc), worker="w")
    (tmp_path / "1.jsonl").write_bytes(
        encode(letter("a")) + encode(letter("b")) + encode(outcome) + b'{"torn'
    )
    (tmp_path / "2.jsonl").write_bytes(encode(letter("b")))
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    assert [*spooled(tmp_path, MATCHER)] == [SpooledLetters(name="1.jsonl", letters=1, unread=1)]
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_a_spool_that_does_not_exist_holds_nothing(tmp_path):
    assert [*spooled(tmp_path / "none", MATCHER)] == []
