"""The commands about the archive, on a directory of files."""

from __future__ import annotations

import json
import shutil

import pytest
from pyarrow import parquet
from support.stores.archives import FakeStore, a_line, archive_all, ids_of, lines, segment_id

from celery_dlq.archive.bucket import Bucket, open_bucket
from celery_dlq.archive.segment import segment_key

FIRST, SECOND = map(segment_id, (1, 2))

HOSTILE = "=\"%' \n<b>\x1b[31m\U0001f407 ;--"


@pytest.fixture
def place(tmp_path):
    place = tmp_path / "letters"
    place.mkdir()
    return place


@pytest.fixture
def url(app, place):
    """Set before the store reads the settings."""
    app.conf.dlq_archive_url = f"file://{place}"
    return app.conf.dlq_archive_url


@pytest.fixture
def archive(url, store):
    """Archives letters of the store."""

    def archive(some, **options):
        store.archiving = FakeStore(some)
        archive_all(open_bucket(url), store.archiving, **options)

    return archive


@pytest.fixture
def archived(archive):
    """An archive with two segments. The second has a letter with secrets."""
    secret = a_line(
        4,
        task="shop.ship",
        kwargs='{"password":"hunter2"}',
        headers='{"authorization":"Bearer hunter2"}',
        traceback="Traceback\nValueError: postgresql://u:hunter2@h/d",
    )
    archive([*lines(3), secret], together=2)


@pytest.fixture
def canvas(archive):
    """An archive with three letters. The third one is of a canvas whose first task, the first one, names no
    root."""
    third = {
        "release": "2.0", "tags": '["a\\"b"]', "verdict": "terminal", "rule": "http.status",
        "root_id": "id-000001",
    }  # fmt: skip
    archive([a_line(1, fields={"root_id": None}), a_line(2), a_line(3, fields=third)])


@pytest.fixture
def restored(archived, store):
    """The store's role that restores letters."""
    return store.archiving


def flip(file):
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(bytes(data))


COMMANDS = [
    ("list",), ("show", "x"), ("verify",), ("restore", "x"), ("export", "--parquet", "x.parquet"),
]  # fmt: skip


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
def test_without_a_place_the_setting_is_named(run, command):
    result = run("archive", *command)
    assert result.exit_code == 1
    assert "dlq_archive_url is not set" in result.stderr


@pytest.mark.parametrize(
    "command", [("adopt",), ("show", "x"), ("verify",), ("restore", "--all", "--yes")]
)
def test_a_place_that_does_not_exist_is_named(run, restored, place, command):
    shutil.rmtree(place)
    result = run("archive", *command)
    assert result.exit_code == 1
    assert "does not exist; make that directory" in result.stderr


# -- ls --------------------------------------------------------------------------------------------


def test_an_empty_archive_is_said_to_be_empty(run, archive, place):
    archive([])
    assert run("archive", "list").stdout == f"The archive file://{place} has no segments.\n"


def test_segments_are_listed(run, archived):
    shown = run("archive", "list").stdout
    assert FIRST in shown
    assert SECOND in shown


def test_a_segment_is_described_in_json(read, archived):
    first, second = read("archive", "list")
    assert (first["segment"], first["letters"]) == (FIRST, 2)
    assert (second["segment"], second["state"]) == (SECOND, "own")


def test_the_files_of_another_store_are_adopted(run, archived, store):
    store.archiving = FakeStore()
    assert run("archive", "adopt").stdout == "Adopted 2 segments.\n"
    assert "shop.charge" in run("archive", "show", "id-000002").stdout


# -- show ------------------------------------------------------------------------------------------


def test_a_letter_is_shown(run, archived):
    shown = run("archive", "show", "id-000002").stdout
    assert "shop.charge" in shown
    assert FIRST in shown
    assert "dlq archive restore id-000002" in shown


@pytest.mark.parametrize("form", ["table", "json", "jsonl", "csv"])
def test_secrets_are_hidden(run, archived, form):
    result = run("archive", "show", "id-000004", "--format", form)
    assert result.exit_code == 0
    assert "hunter2" not in result.output
    assert "[redacted]" in result.output


def test_an_unknown_letter_is_named(run, archived):
    result = run("archive", "show", "nowhere")
    assert result.exit_code == 1
    assert "The archive has no letter nowhere" in result.stderr


def test_a_letter_that_is_not_found_may_be_in_a_segment_that_cannot_be_read(run, archived, place):
    flip(place / segment_key(FIRST))
    result = run("archive", "show", "id-000001")
    assert result.exit_code == 1
    assert f"{segment_key(FIRST)} is not the file that was written" in result.stderr
    assert "The archive has no letter id-000001, as far as it can be read" in result.stderr


# -- verify ----------------------------------------------------------------------------------------


def test_a_whole_archive_is_said_to_be_whole(run, archived):
    result = run("archive", "verify")
    assert result.exit_code == 0
    assert "4 letters in 2 segments" in result.stdout


def test_a_flipped_bit_is_named(run, archived, place):
    flip(place / segment_key(SECOND))
    result = run("archive", "verify")
    assert result.exit_code == 1
    assert segment_key(SECOND) in result.stdout
    assert "damaged" in result.stdout


def test_a_file_without_a_row_is_partial_success(run, archived, place):
    (place / "segments" / "notes.txt").touch()
    result = run("archive", "verify", "--format", "jsonl")
    assert result.exit_code == 4
    assert json.loads(result.stdout)["problem"] == "unknown"


def test_a_segment_that_is_missing_is_named(run, archived, place):
    (place / segment_key(SECOND)).unlink()
    result = run("archive", "verify")
    assert result.exit_code == 1
    assert f"missing  {segment_key(SECOND)}" in result.stdout


# -- restore ---------------------------------------------------------------------------------------


def test_letters_are_restored_by_id(run, restored):
    result = run("archive", "restore", "id-000002")
    assert (result.exit_code, result.stdout) == (0, "1 letter restored.\n")
    assert list(restored.letters) == ["id-000002"]
    assert restored.open == set()


def test_a_restore_reads_each_file_once(run, restored, monkeypatch):
    read, keys = Bucket.read, []

    def noted(bucket, key):
        keys.append(key)
        return read(bucket, key)

    monkeypatch.setattr(Bucket, "read", noted)
    run("archive", "restore", "--all", "--yes")
    assert sorted(keys) == [segment_key(one) for one in (FIRST, SECOND)]


def test_letters_are_reopened_on_request(run, restored):
    run("archive", "restore", "id-000002", "--reopen")
    assert restored.open == {"id-000002"}


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (("--task", "ship"), ["id-000004"]),
        (("--task", "shop.charge"), ids_of(lines(3))),
        (("--exception", "ConnectionError"), ids_of(lines(4))),
        (("--group", "739b"), ids_of(lines(4))),
        (("--until", "2000-01-01T00:00Z"), []),
        (("--all",), ids_of(lines(4))),
    ],
)
def test_letters_are_restored_by_filters(run, restored, options, expected):
    assert run("archive", "restore", *options, "--yes").exit_code == 0
    assert sorted(restored.letters) == expected


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (("--release", "1.0"), [1, 2]),
        (("--release", "2.0"), [3]),
        (("--release", "2"), []),
        (("--tag", 'a"b'), [3]),
        (("--tag", "a"), []),
    ],
)
def test_letters_are_restored_by_the_fields_of_their_failure(run, canvas, store, options, expected):
    assert run("archive", "restore", *options, "--yes").exit_code == 0
    assert sorted(store.archiving.letters) == [f"id-{number:06}" for number in expected]


def test_more_than_one_letter_is_confirmed(run, restored, terminal):
    terminal.sit_down()
    result = run("archive", "restore", "--all", answer="n\n")
    assert result.exit_code == 1
    assert "Restore up to 4 letters?" in result.output
    assert restored.letters == {}


def test_without_a_terminal_yes_is_needed(run, restored):
    assert run("archive", "restore", "--all").exit_code == 2
    assert restored.letters == {}


@pytest.mark.parametrize("options", [(), ("--all", "id-000001"), ("--all", "--task", "ship")])
def test_a_restore_needs_one_choice(run, restored, options):
    assert run("archive", "restore", *options, "--yes").exit_code == 2
    assert restored.letters == {}


def test_letters_that_the_store_has_are_named(run, restored):
    run("archive", "restore", "id-000002")
    result = run("archive", "restore", "id-000002")
    assert result.exit_code == 0
    assert "Already in the store: id-000002" in result.stderr


def test_a_letter_that_is_not_there_is_partial_success(run, restored):
    result = run("archive", "restore", "id-000002", "nowhere", "--yes")
    assert result.exit_code == 4
    assert "Not in the archive: nowhere" in result.stderr


def test_a_restore_of_nothing_that_is_there_fails(run, restored):
    assert run("archive", "restore", "nowhere").exit_code == 1


def test_a_damaged_segment_is_partial_success(run, restored, place):
    flip(place / segment_key(FIRST))
    result = run("archive", "restore", "--all", "--yes")
    assert result.exit_code == 4
    assert segment_key(FIRST) in result.stderr
    assert sorted(restored.letters) == ["id-000003", "id-000004"]


# -- export ----------------------------------------------------------------------------------------


def test_letters_are_exported(run, archived, tmp_path):
    target = tmp_path / "letters.parquet"
    result = run("archive", "export", "--parquet", target)
    assert result.stdout == f"4 letters written to {target}.\n"
    assert parquet.read_table(target).num_rows == 4


def test_contents_are_exported_on_request(run, archived, tmp_path):
    target = tmp_path / "letters.parquet"
    run("archive", "export", "--parquet", target, "--contents", "--task", "ship")
    assert parquet.read_table(target)["kwargs"].to_pylist() == ['{"password":"hunter2"}']


def test_an_existing_file_is_not_overwritten(run, archived, tmp_path):
    target = tmp_path / "letters.parquet"
    target.write_text("mine")
    assert run("archive", "export", "--parquet", target).exit_code == 2
    assert target.read_text() == "mine"


def test_an_export_without_a_damaged_segment_is_partial_success(run, archived, place, tmp_path):
    flip(place / segment_key(FIRST))
    result = run("archive", "export", "--parquet", tmp_path / "letters.parquet")
    assert result.exit_code == 4
    assert segment_key(FIRST) in result.stderr
