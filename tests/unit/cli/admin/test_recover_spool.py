import json
import os
from pathlib import Path

import pytest
from support.factories import attempt, delivery, letter

from celery_dlq.base.sealing import Keyring
from celery_dlq.errors import RecordRefused
from celery_dlq.model.letter import FORMAT
from celery_dlq.spool.directory import Spool
from celery_dlq.spool.segment import encode, new_segment
from celery_dlq.store.base import Filter

LINE = encode(letter("a"))
UNKNOWN = LINE.replace(b'"format": %d' % FORMAT, b'"format": 9')


@pytest.fixture
def directory(tmp_path):
    path = tmp_path / "spool"
    path.mkdir(mode=0o700)
    return path


@pytest.fixture
def refuse(queue, monkeypatch):
    """Makes the store refuse some letters."""
    real = queue.store.letters.save

    def refuse(*bad):
        def save(letters):
            if {made.task_id for made in letters} & {*bad}:
                raise RecordRefused
            return real(letters)

        monkeypatch.setattr(queue.store.letters, "save", save)

    return refuse


# -- list ------------------------------------------------------------------------------------------


def test_an_empty_spool(run, tmp_path):
    assert run("recover", "--list").stdout == (
        f"Nothing waits in the spool {tmp_path}/spool and in the flight recorder's directory "
        f"{tmp_path}/spool/recorder.\n"
    )


def test_files_are_listed_with_their_state(read, directory):
    for name, content in {
        "1.jsonl": LINE * 2,
        "3.torn": LINE[:9],
        "4.refused": LINE,
    }.items():
        (directory / name).write_bytes(content)
        os.utime(directory / name, (1_000_000_000, 1_000_000_000))
    ours = Spool(directory)
    ours.append([letter("b")])
    found = read("recover", "--list")
    by_name = {file["name"]: (file["state"], file["holds"]) for file in found}
    assert by_name == {
        "1.jsonl": ("waiting", 2), "3.torn": ("torn", 0),
        "4.refused": ("refused", 1), ours.files()[-1].name: ("in use", 1),
    }  # fmt: skip
    assert found[0]["size"] == 2 * len(LINE)
    assert found[0]["written_at"] == "2001-09-09T01:46:40+00:00"
    ours.close()


def test_a_terminal_shows_the_age_of_a_file(run, directory, terminal):
    (directory / "1.jsonl").write_bytes(LINE)
    os.utime(directory / "1.jsonl", (1_000_000_000, 1_000_000_000))
    terminal.sit_down(width=100)
    assert "d ago" in run("recover", "--list").stdout


def test_the_table_says_where_each_file_is(run, directory):
    (directory / "1.jsonl").write_bytes(LINE)
    out = run("recover", "--list").stdout
    assert out.splitlines()[1].split()[:3] == ["spool", "1.jsonl", "waiting"]
    assert " kB" in out


# -- drain -----------------------------------------------------------------------------------------


def test_waiting_letters_are_drained_into_the_store(run, queue, directory):
    (directory / "1.jsonl").write_bytes(LINE + encode(letter("b")))
    result = run("recover")
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout == (
        f"2 records drained from {directory} into the store.\n0 letters made, reason lost.\n"
    )
    assert queue.store.counts.letters(Filter()) == 2
    assert list(directory.iterdir()) == []
    assert run("recover").stdout.startswith("0 records drained")


def test_the_file_of_a_live_worker_is_left_and_named(run, directory):
    ours = Spool(directory)
    ours.append([letter("b")])
    result = run("recover")
    assert result.exit_code == 4
    assert result.stderr == f"Left to the workers that use them: file {ours.files()[0].name}\n"
    ours.close()
    assert run("recover").exit_code == 0


def test_an_open_file_without_a_letter_is_not_left_behind(run, directory):
    ours = new_segment(directory)
    assert (run("recover").exit_code, run("recover").stderr) == (0, "")
    ours.close()


def test_files_that_remain_are_named_and_exit_with_4(run, refuse, queue, directory):
    (directory / "1.jsonl").write_bytes(b"{torn\n" + UNKNOWN + LINE + encode(letter("bad")))
    refuse("bad")
    result = run("recover")
    assert result.exit_code == 4
    assert "1 record drained" in result.stdout
    said = result.stderr
    assert "Incomplete lines, set aside: file 1.torn" in said
    assert "Refused by the store, set aside: file 1.refused" in said
    assert "recover FILE" in said
    assert queue.store.letters.get("a") is not None
    assert {path.name for path in directory.iterdir()} == {"1.torn", "1.refused"}
    again = run("recover")
    assert (again.exit_code, again.stderr) == (4, said), "it is no better than before"


def test_encrypted_letters_wait_for_the_key(run, app, directory, tmp_path):
    keys = {"new": b"n" * 32}
    line = encode(letter("a"), Keyring(keys))
    (directory / "1.jsonl").write_bytes(line)
    log = tmp_path / "worker.log"
    log.write_bytes(b"CRITICAL " + line)
    result = run("recover")
    assert (result.exit_code, "and left: file 1.jsonl" in result.stderr) == (4, True)
    result = run("recover", str(log))
    assert (result.exit_code, "set dlq_encryption_keys here" in result.stderr) == (4, True)
    assert result.stderr.endswith(": line 1\n")


def test_encrypted_letters_are_recovered_with_the_key(run, app, queue, directory, tmp_path):
    app.conf.dlq_encryption_keys = {"new": b"n" * 32}
    log = tmp_path / "worker.log"
    log.write_bytes(b"CRITICAL " + encode(letter("a"), Keyring({"new": b"n" * 32})))
    (directory / "1.jsonl").write_bytes(encode(letter("b"), Keyring({"new": b"n" * 32})))
    assert (run("recover", str(log)).exit_code, run("recover").exit_code) == (0, 0)
    assert queue.store.counts.letters(Filter()) == 2


def test_a_file_that_cannot_be_removed_is_named_and_exits_with_4(run, directory, monkeypatch):
    (directory / "1.jsonl").write_bytes(LINE)

    def refuse(*_args, **_named):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "unlink", refuse)
    result = run("recover")
    assert result.exit_code == 4
    assert "Could not be read or removed, and left: file 1.jsonl" in result.stderr


def test_an_unreadable_directory_is_not_an_empty_spool(run, directory, monkeypatch):
    def refuse(_self):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "iterdir", refuse)
    for words in (["recover"], ["recover", "--list"]):
        result = run(*words)
        assert (result.exit_code, result.stdout) == (1, "")
        assert f"The spool {directory} cannot be read (Permission denied)" in result.stderr


def test_a_file_instead_of_the_directory_is_an_error(run, directory):
    directory.rmdir()
    directory.write_text("")
    result = run("recover")
    assert result.exit_code == 1
    assert "cannot be read (Not a directory); check dlq_spool_dir" in result.stderr


def test_quiet_still_names_the_files_that_remain(run, directory):
    (directory / "2.torn").write_bytes(LINE[:9])
    result = run("recover", quiet=True)
    assert (result.exit_code, result.stdout) == (4, "")
    assert "2.torn" in result.stderr


def test_nothing_is_lost_while_the_store_is_down(run, app, directory):
    (directory / "1.jsonl").write_bytes(LINE)
    app.conf.dlq_store_url = "sqlite:////no/such/directory/letters.sqlite3"
    result = run("recover")
    assert result.exit_code == 3
    [error] = result.stderr.splitlines()
    assert error.startswith("Error: ")
    assert (directory / "1.jsonl").read_bytes() == LINE


def test_a_drain_is_in_the_audit(run, read, store, directory):
    (directory / "1.jsonl").write_bytes(LINE + encode(letter("b")))
    (directory / "2.jsonl").write_bytes(encode(letter("c")))
    run("recover")
    run("recover")
    [row] = read("audit", "--act", "drain")
    assert (row["count"], row["detail"]) == (3, {"directory": str(directory)})
    assert row["who"]


def test_an_empty_spool_needs_no_store(run, app):
    app.conf.dlq_store_url = "sqlite:////no/such/directory/letters.sqlite3"
    assert run("recover").exit_code == 0


# -- import ----------------------------------------------------------------------------------------


def critical(line):
    return f"[2026-11-21 12:00:00,000: CRITICAL/MainProcess] dead letter neither stored: {line}"


@pytest.mark.parametrize("form", ["plain", "json", "spool"])
def test_letters_are_found_in_a_log_in_either_form(run, queue, tmp_path, form):
    lines = [LINE.decode().strip(), encode(letter("b")).decode().strip()]
    if form == "plain":
        lines = [critical(line) for line in lines]
    elif form == "json":
        lines = [json.dumps({"level": "CRITICAL", "log": critical(line) + "\n"}) for line in lines]
    path = tmp_path / "worker.log"
    path.write_text(
        "\n".join(["INFO ready \udcff", lines[0], "INFO {}", lines[1], ""]),
        errors="surrogateescape",
    )
    result = run("recover", path)
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout == "2 records stored.\n"
    assert queue.store.counts.letters(Filter()) == 2
    assert run("recover", path).exit_code == 0
    assert queue.store.counts.letters(Filter()) == 2


def test_standard_input_is_read_too(run, queue):
    assert run("recover", "-", answer=critical(LINE.decode())).exit_code == 0
    assert queue.store.letters.get("a") is not None


def test_unreadable_and_refused_records_are_named(run, refuse, queue, tmp_path):
    path = tmp_path / "worker.log"
    lines = [encode(letter("bad")), LINE[:60] + b"\n", LINE, UNKNOWN]
    path.write_bytes(b"".join(lines))
    refuse("bad")
    result = run("recover", path)
    assert result.exit_code == 4
    assert result.stdout == "1 record stored.\n"
    assert "Cut off, or not readable by this release: lines 2, 4" in result.stderr
    assert "Refused by the store: record bad" in result.stderr
    assert queue.store.letters.get("a") is not None


@pytest.mark.parametrize("batch", [1, 500])
def test_letters_whose_messages_came_again_are_named(run, store, tmp_path, monkeypatch, batch):
    monkeypatch.setattr("celery_dlq.cli.admin.recover._BATCH", batch)
    names = ("later", "later", "earlier", "failed-since", "failed-before", "never")
    failed_since = letter("failed-since", attempt(minutes=6, number=2))
    lines = [*(encode(letter(name)) for name in names), encode(failed_since)]
    path = tmp_path / "worker.log"
    path.write_bytes(b"".join(lines))
    for name, minutes in (("later", 5), ("earlier", -5), ("failed-since", 5), ("failed-before", 5)):
        store.deliveries.put(delivery(name, minutes=minutes))
    store.letters.save([letter("failed-before", attempt(minutes=6, number=2))])
    result = run("recover", path)
    assert (result.exit_code, result.stdout) == (0, "7 records stored.\n")
    assert "tasks may have succeeded since" in result.stderr
    assert result.stderr.endswith("redrive them: letter later\n")


def test_an_import_is_in_the_audit(run, store, tmp_path):
    path = tmp_path / "1.refused"
    path.write_bytes(LINE)
    run("recover", str(path))
    [row] = store.audit.find().rows
    assert (row.act, row.count, row.detail) == ("import", 1, {"file": str(path)})


def test_without_a_store_nothing_is_imported(run, app, tmp_path):
    path = tmp_path / "worker.log"
    path.write_bytes(LINE)
    app.conf.dlq_store_url = "sqlite:////no/such/directory/letters.sqlite3"
    result = run("recover", path)
    assert result.exit_code == 3
    assert result.stderr.startswith("Error: ")


def test_a_missing_file_is_a_usage_error(run):
    result = run("recover", "no-such-file")
    assert result.exit_code == 2


# -- doctor ----------------------------------------------------------------------------------------


def spool_findings(run):
    lines = [line.split(maxsplit=2) for line in run("doctor").stdout.splitlines()[1:]]
    return [(level, text) for check, level, text in lines if check == "spool"]


def test_the_doctor_names_the_step_for_each_state(run, directory):
    for name, content in {
        "1.jsonl": LINE,
        "3.torn": LINE[:9],
        "4.refused": LINE,
    }.items():
        (directory / name).write_bytes(content)
    levels, texts = zip(*spool_findings(run), strict=True)
    assert set(levels) == {"warning"}
    for text, step in zip(
        texts,
        ("recover", "keep a copy elsewhere", "recover FILE"),
        strict=True,
    ):
        assert text.startswith("1 ")
        assert step in text


def test_the_doctor_leaves_live_workers_and_the_directory_alone(run, directory):
    ours = Spool(directory)
    ours.append([letter()])
    before = {path: path.read_bytes() for path in directory.iterdir()}
    assert [level for level, _text in spool_findings(run)] == ["ok"]
    assert {path: path.read_bytes() for path in directory.iterdir()} == before
    ours.close()


def test_the_doctor_counts_what_live_workers_keep(run, directory):
    ours = Spool(directory)
    ours.append([letter("a"), letter("b"), letter("c")])
    assert spool_findings(run) == [
        (
            "ok",
            f"{directory} is writable and has 3 records that workers keep until the store takes them",
        )
    ]
    ours.close()


def test_the_doctor_tries_to_write_to_the_spool(run, directory, monkeypatch):
    def unsupported(file, how):
        raise OSError(37, "No locks available")

    monkeypatch.setattr("celery_dlq.spool.segment.fcntl.flock", unsupported)
    [(level, text)] = spool_findings(run)
    assert level == "error"
    assert "No locks available" in text
