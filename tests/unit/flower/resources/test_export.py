"""Lists as files."""

import csv
import io
import json
from datetime import timedelta

import pytest
from support.factories import T0, attempt, letter

from celery_dlq.errors import StoreUnavailable
from celery_dlq.flower.resources import letters
from celery_dlq.store.base import Filter
from celery_dlq.store.letters.records import Letters

EXPORT = "/dead-letters/export"


def rows_of(page):
    return list(csv.DictReader(io.StringIO(page.body)))


def test_letters_as_csv(ann):
    page = ann.get(f"{EXPORT}/letters.csv?task=charge")
    assert page.status == 200
    assert page.headers["Content-Type"] == "text/csv; charset=utf-8"
    assert page.headers["Content-Disposition"] == 'attachment; filename="dead-letters.csv"'
    assert [row["task_id"] for row in rows_of(page)] == ["0d3f2222-bbbb", "0d3f1111-aaaa"]


def test_lists_have_the_records_of_the_command_line(ann, store):
    store.closing.discard(Filter(ids=("77e1",)), who="bob", why="a test", now=T0)
    [act] = map(json.loads, ann.get(f"{EXPORT}/audit.jsonl").body.splitlines())
    assert (act["act"], act["who"], act["why"]) == ("discard", "bob", "a test")
    groups = [*map(json.loads, ann.get(f"{EXPORT}/groups.jsonl?status=open").body.splitlines())]
    assert groups[0]["fingerprint"] == "9c1e0000deadbeef"
    assert groups[0]["tickets"] == []
    assert ann.get(f"{EXPORT}/audit.jsonl?act=redrive").body == ""


@pytest.mark.parametrize("kind", ["letters", "groups", "audit"])
def test_a_long_list_is_sent_page_by_page(ann, store, monkeypatch, kind):
    monkeypatch.setattr(letters, "TOGETHER", 2)
    for number in range(5):
        at = T0 + timedelta(seconds=number)
        store.letters.save([letter(f"n{number}", attempt(failed_at=at), fingerprint=f"{number}")])
        store.closing.discard(Filter(ids=(f"n{number}",)), who="bob", why="", now=at)
        store.closing.undiscard(Filter(ids=(f"n{number}",)), who="bob", now=at)
    expected = {"letters": 8, "groups": 7, "audit": 10}[kind]
    rows = rows_of(ann.get(f"{EXPORT}/{kind}.csv"))
    assert len(rows) == expected
    assert len({tuple(row.items()) for row in rows}) == expected


def test_formulas_are_defused(ann, store):
    store.letters.save([letter("evil", message="=HYPERLINK(1)", exception_type="@SUM(1)")])
    [row] = [row for row in rows_of(ann.get(f"{EXPORT}/letters.csv")) if row["task_id"] == "evil"]
    assert (row["message"], row["exception_type"]) == ("'=HYPERLINK(1)", "'@SUM(1)")


def test_a_file_that_is_cut_off_does_not_look_complete(ann, monkeypatch):
    monkeypatch.setattr(letters, "TOGETHER", 1)
    find, calls = Letters.find, []

    def fail_later(self, *args, **kwargs):
        calls.append(args)
        if len(calls) > 1:
            raise StoreUnavailable
        return find(self, *args, **kwargs)

    monkeypatch.setattr(Letters, "find", fail_later)
    with pytest.raises(Exception, match="closed"):
        ann.get(f"{EXPORT}/letters.csv")


@pytest.mark.parametrize(
    ("address", "status"),
    [
        ("letters.csv?task=", 200),
        ("letters.csv?tusk=charge", 400),
        ("groups.csv?queue=mail", 400),
        ("audit.csv?act=gone", 400),
        ("letters.xls", 404),
        ("secrets.csv", 404),
        ("letters", 404),
    ],
)
def test_wrong_addresses_are_refused(ann, address, status):
    assert ann.get(f"{EXPORT}/{address}").status == status


def test_lists_link_to_their_files_with_the_filters(ann, store):
    for page in ("letters", "groups"):
        found = ann.get(f"/dead-letters/{page}?task=charge")
        assert found.find("a", href=f"{EXPORT}/{page}.csv?task=charge")
        assert found.find("a", href=f"{EXPORT}/{page}.jsonl?task=charge")


def test_strangers_get_nothing(visit, three):
    assert visit(basic_auth=["ann:secret"]).get(f"{EXPORT}/letters.csv").status == 401
