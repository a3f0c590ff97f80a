import csv
import io
import json

import pytest
from sqlalchemy import update
from support.factories import T0, letter

from celery_dlq.cli import session
from celery_dlq.store.database import tables


@pytest.fixture
def acts(run, store, monkeypatch):
    """Two acts of ada, and one of bob."""
    store.letters.save([letter("a1"), letter("b1")])
    for who, words in (
        ("ada", ["discard", "a1", "--why", "=known"]),
        ("ada", ["discard", "--undo", "a1"]),
        ("bob", ["discard", "--all", "--yes", "--why", "two\nlines"]),
    ):
        monkeypatch.setattr(session.getpass, "getuser", lambda who=who: who)
        assert run(*words).exit_code == 0


def acts_of(found):
    return [(row["who"], row["act"], row["count"]) for row in found]


def test_acts_are_listed_newest_first_with_every_column(run, read, acts):
    found = read("audit")
    assert acts_of(found) == [("bob", "discard", 2), ("ada", "undiscard", 1), ("ada", "discard", 1)]
    assert found[0]["why"] == "two\nlines"
    assert found[2]["detail"]["filter"]["ids"] == ["a1"]
    assert {"at", "host"} <= set(found[0])
    out = run("audit").stdout
    assert out.splitlines()[0].split() == ["WHEN", "WHO", "FROM", "DID", "WHY", "WHERE"]
    assert "discarded 2 letters" in out
    assert "two\\nlines" in out
    assert "ids=a1, states=discarded" in out


@pytest.mark.parametrize(
    ("args", "count"),
    [
        (["--who", "ada"], 2),
        (["--act", "discard"], 2),
        (["--act", "discard", "--who", "bob"], 1),
        (["--since", "2h"], 3),
        (["--since", T0.replace(year=2030).isoformat()], 0),
    ],
)
def test_filters(read, acts, args, count):
    assert len(read("audit", *args)) == count


def test_acts_on_a_group_are_found_by_a_prefix_of_it(run, read, acts):
    assert run("groups", "resolve", "9c1e").exit_code == 0
    assert [row["act"] for row in read("audit", "--group", "9c1e")] == ["resolve"]
    # The letters of a group may have been deleted.
    assert read("audit", "--group", "77") == []


def test_pages_hide_secrets(run, read, acts):
    first = run("audit", "--limit", "2", "--format", "jsonl")
    assert len(first.stdout.splitlines()) == 2
    cursor = first.stderr.partition("--after ")[2].strip()
    assert acts_of(read("audit", "--after", cursor)) == [("ada", "discard", 1)]


def test_csv_has_no_formulas(run, acts):
    rows = list(csv.DictReader(io.StringIO(run("audit", "--format", "csv").stdout)))
    assert rows[2]["why"] == "'=known"


def test_no_acts(run, store):
    assert run("audit").stdout == "No acts match.\n"


def test_an_invalid_cursor_is_refused(run, acts):
    assert run("audit", "--after", "nonsense").exit_code == 2


def test_a_letter_by_a_prefix_of_its_id(run, read, acts):
    assert acts_of(read("audit", "--letter", "a")) == [
        ("ada", "undiscard", 1),
        ("ada", "discard", 1),
    ]
    assert run("audit", "--letter", "zz").exit_code == 1


def test_acts_on_a_deleted_letter(run, read, acts):
    assert run("delete", "a1", "--why", "wrong", "--yes").exit_code == 0
    found = acts_of(read("audit", "--letter", "a1"))
    assert [(act, count) for _, act, count in found] == [
        ("delete", 1),
        ("undiscard", 1),
        ("discard", 1),
    ]


def test_changes_of_a_repair_are_shown_without_secrets(run, read, store):
    store.letters.save([letter("a1"), letter("b1")])
    sets = ("--set", "kwargs.currency=USD", "--set", 'args.0={"card_token": 4711}')
    done = run("redrive", "a1", *sets, "--why", "a typo in the form")
    assert "4711" not in done.stdout
    (row,) = read("audit", "--act", "redrive")
    assert (row["count"], row["why"]) == (1, "a typo in the form")
    assert row["detail"]["repair"] == {"set": ['kwargs.currency="USD"', "args.0=[redacted]"]}
    (of_letter,) = read("audit", "--letter", "a1")
    assert '+ kwargs.currency = "USD"' in of_letter["detail"]["changed"]
    assert "4711" not in str(of_letter)
    out = run("audit", "--letter", "a1").stdout
    assert "Changed by redrive" in out
    assert '- kwargs.currency = "EUX"' in out
    assert "4711" not in out


def test_no_act_of_that_kind_on_a_deleted_letter_is_not_an_error(run, acts):
    assert run("delete", "a1", "--why", "wrong", "--yes").exit_code == 0
    result = run("audit", "--letter", "a1", "--act", "redrive")
    assert (result.exit_code, result.stdout, result.stderr) == (0, "No acts match.\n", "")


def test_an_id_that_nobody_ever_had_is_an_error_for_every_kind_of_act(run, acts):
    result = run("audit", "--letter", "zz", "--act", "redrive")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "'zz'" in result.stderr


def test_an_untouched_audit_is_verified(run, read, acts):
    result = run("audit", "verify")
    assert result.exit_code == 0
    assert "Checked 3 acts and 3 links." in result.stdout
    record = read("audit", "verify")
    assert (record["acts"], record["links"], record["keyed"], record["breaks"]) == (3, 3, 0, [])
    assert f"Head: {record['head']}" in result.stdout
    assert run("audit", "verify", "--head", record["head"]).exit_code == 0


def test_a_changed_act_is_named_and_the_status_says_so(run, store, acts):
    forged = update(tables.audit).where(tables.audit.c.who == "bob").values(who="eve")
    store.database.write(lambda connection: connection.execute(forged))
    result = run("audit", "verify")
    assert result.exit_code == 1
    assert "changed" in result.stdout
    assert "discard by eve" in result.stdout
    found = run("audit", "verify", "--format", "json")
    assert found.exit_code == 1
    [one] = json.loads(found.stdout)["breaks"]
    assert one.startswith("Act 3 (discard by eve, ")
    assert one.endswith(" was changed: it is not as link 3 has recorded it.")


def test_a_head_that_is_not_in_the_chain_is_a_break(run, acts):
    result = run("audit", "verify", "--head", "2:" + "0" * 64)
    assert result.exit_code == 1
    assert "it has no head 2:000" in " ".join(result.stdout.split())
    wrong = run("audit", "verify", "--head", "2")
    assert wrong.exit_code == 2
    assert "N:HASH" in wrong.stderr
