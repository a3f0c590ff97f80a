import sqlite3
from datetime import timedelta

import pytest

from celery_dlq.cli.doctor import named
from celery_dlq.store.database.schema import HEAD, versions
from celery_dlq.store.sql import SQLStore
from celery_dlq.worker.broker_limits import upkeep_lease
from celery_dlq.worker.task import DLQTask


@pytest.fixture
def path(tmp_path):
    return tmp_path / "letters.sqlite3"


def test_upgrade_from_nothing_and_again(run, path):
    path.write_bytes(b"")
    result = run("db", "current")
    assert (result.exit_code, result.stdout) == (3, f"none; this release needs {HEAD}\n")
    assert result.stderr == "Run: celery dlq db upgrade\n"
    assert run("db", "upgrade").stdout == f"Upgraded the schema from nothing to {HEAD}.\n"
    assert run("db", "upgrade").stdout == f"The schema is already at {HEAD}.\n"
    result = run("db", "current")
    assert (result.exit_code, result.stdout) == (0, f"{HEAD}; this release needs {HEAD}\n")


def test_sql_is_printed_without_a_connection(run, path):
    path.unlink()
    out = run("db", "sql").stdout
    assert "CREATE TABLE celery_dead_letter" in out
    assert f"INSERT INTO celery_dlq_version (version_num) VALUES ('{HEAD}')" in out
    assert not path.exists()


def test_sql_from_the_newest_schema_creates_nothing(run):
    assert "CREATE TABLE" not in run("db", "sql", "--from", HEAD).stdout


@pytest.mark.parametrize("version", ["9999", "", "head", "base", "0001:0002", "-1", "1"])
def test_sql_from_an_unknown_version_lists_the_known_ones(run, version):
    result = run("db", "sql", "--from", version)
    assert (result.exit_code, result.stdout) == (2, "")
    if version:
        assert f"{version!r} is not a schema version of this release" in result.stderr
        assert f"there is {', '.join(versions())}." in result.stderr


def set_version(path, version):
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE celery_dlq_version SET version_num = ?", [version])
    connection.close()


@pytest.mark.parametrize("words", [["list"], ["db", "upgrade"]])
def test_a_newer_schema_stops_every_command_with_its_own_status(run, path, words):
    set_version(path, "9999")
    result = run(*words)
    assert result.exit_code == 3
    assert result.stderr.startswith("Error: The schema of the dead-letter store is at 9999, newer")
    assert result.stderr.endswith("run: pip install --upgrade celery-dlq\n")
    assert len(result.stderr.splitlines()) == 1


def test_a_newer_schema_asks_for_a_newer_release_and_not_for_an_upgrade(run, path):
    set_version(path, "9999")
    result = run("db", "current")
    assert (result.exit_code, result.stdout) == (3, f"9999; this release needs {HEAD}\n")
    assert result.stderr == "Run: pip install --upgrade celery-dlq\n"


@pytest.mark.parametrize(
    "words", [["list"], ["db", "upgrade"], ["db", "current"], ["db", "sql", "--from", "0024"]]
)
def test_a_schema_that_was_never_released_says_what_to_do(run, path, words):
    set_version(path, "0024")
    before = path.read_bytes()
    result = run(*words)
    assert result.exit_code == 3
    assert result.stdout == (
        f"0024; this release needs {HEAD}\n" if words == ["db", "current"] else ""
    )
    assert result.stderr == (
        "Error: The schema of the dead-letter store is at 0024, which an unreleased state of "
        "celery-dlq made and this release cannot upgrade. Redrive or discard the open letters with "
        "that state, and then set dlq_store_url to a new database; see "
        "`celery dlq help install-on-postgresql-or-mysql`.\n"
    )
    assert path.read_bytes() == before


def test_an_upgrade_from_an_unknown_version_is_refused_in_one_line(run, path):
    set_version(path, "0000")
    result = run("db", "upgrade")
    assert result.exit_code == 3
    assert "is at 0000, which this release cannot upgrade" in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_a_store_that_does_not_answer_has_its_own_status(run, app):
    app.conf.dlq_store_url = "sqlite:////no/such/directory/letters.sqlite3"
    for args in (["list"], ["stats"], ["show", "x"], ["redrive", "x"], ["db", "upgrade"]):
        result = run(*args)
        assert result.exit_code == 3, args
        assert result.stderr.startswith("Error: ")
        assert len(result.stderr.splitlines()) == 1


def test_a_wrong_setting_is_one_line(run, app):
    app.conf.dlq_store_ulr = "x"
    result = run("list")
    assert result.exit_code == 1
    assert "did you mean 'dlq_store_url'?" in result.stderr


# -- doctor ----------------------------------------------------------------------------------------


def do_nothing():
    """A task's body."""


def findings(result):
    """Level and text by check."""
    found = {}
    for line in result.stdout.splitlines()[1:]:
        check, level, text = line.split(maxsplit=2)
        found.setdefault(check, []).append((level, text))
    return found


def test_a_healthy_set_up(run, store, app, queue):
    store.leases.take(upkeep_lease(queue.hold.place), holder="a worker", seconds=1_000_000)
    app.tasks["shop.charge"].acks_late = True
    result = run("doctor")
    found = findings(result)
    assert result.exit_code == 0, result.stdout
    assert {level for check in found.values() for level, _ in check} == {"ok"}
    assert f"answers, schema {HEAD}, 0 open letters" in found["store"][0][1]
    assert found["tasks"][0][1] == "1 task with base=DLQTask"
    assert "is writable and empty" in found["spool"][0][1]


def test_a_wrong_clock_is_a_warning(run, store, monkeypatch):
    monkeypatch.setattr(SQLStore, "clock_ahead", lambda _store: timedelta(minutes=-2))
    result = run("doctor")
    assert result.exit_code == 0
    [(level, text)] = findings(result)["clock"]
    assert level == "warning"
    assert text.startswith("the clock of this machine is 120 seconds ahead of the database's")


def test_on_a_terminal_nothing_is_cut(run, store, terminal):
    terminal.sit_down(width=60)
    out = " ".join(run("doctor").stdout.split())
    assert "is writable and empty" in out or "and empty" in out


def test_a_wrong_setting_is_an_error_and_the_other_checks_go_on(run, app):
    app.conf.dlq_max_attempts = -1
    result = run("doctor")
    assert result.exit_code == 1
    found = findings(result)
    assert found["settings"][0][0] == "error"
    assert found["broker"][0][0] == "ok"
    assert [text for _, text in found["settings"]].count(found["settings"][0][1]) == 1
    assert result.stdout.count("dlq_max_attempts") == 1
    assert result.stdout.count("the same reason") == 1
    [_, (level, text)] = found["settings"]
    assert level == "error"
    assert text.startswith("not checked, for the same reason: store, servers, ")
    assert "store" not in found


def test_a_store_that_does_not_answer(run, app):
    app.conf.dlq_store_url = "sqlite:////no/such/directory/letters.sqlite3"
    result = run("doctor")
    assert result.exit_code == 1
    assert findings(result)["store"][0][0] == "error"


def test_a_store_that_is_read_only(run, app, path):
    app.conf.dlq_store_url = f"sqlite:///file:{path}?mode=ro&uri=true"
    result = run("doctor")
    assert result.exit_code == 1
    [(level, text)] = findings(result)["store"]
    assert level == "error"
    assert "make the file and its directory writable" in text


def test_a_password_is_not_shown(run, app, monkeypatch):
    app.conf.dlq_store_url = "postgresql://u:hunter2@127.0.0.1:1/x"
    app.conf.broker_url = "redis://:hunter2@127.0.0.1:1/0"
    result = run("doctor")
    assert result.exit_code == 1
    assert "hunter2" not in result.stdout
    assert findings(result)["broker"][0][0] == "error"
    assert "check broker_url" in findings(result)["broker"][0][1]


@pytest.mark.parametrize("variable", ["", "postgresql://u:hunter2@127.0.0.1:1/x"])
def test_a_password_in_the_configuration_is_a_warning(run, app, monkeypatch, variable):
    app.conf.dlq_store_url = "postgresql://u:hunter2@127.0.0.1:1/x"
    monkeypatch.setenv("CELERY_DLQ_STORE_URL", variable)
    told = [text for level, text in findings(run("doctor"))["store"] if level == "warning"]
    assert ["the password in dlq_store_url" in text for text in told] == [True] * (not variable)


def test_a_relative_store_path_is_a_warning(run, app, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    app.conf.dlq_store_url = "sqlite:///letters.sqlite3"
    result = run("doctor")
    assert result.exit_code == 0
    level, text = findings(result)["store"][1]
    assert level == "warning"
    assert "set dlq_store_url to an absolute path" in text


def test_a_spool_directory_that_cannot_be_created_is_an_error(run, app):
    # Its mode says that root may write there.
    app.conf.dlq_spool_dir = "/proc/spool"
    [(level, text)] = findings(run("doctor"))["spool"]
    assert level == "error"
    assert text.startswith("/proc is not writable")


def test_spooled_and_torn_files_are_a_warning(run, store, tmp_path):
    (tmp_path / "spool").mkdir(mode=0o700)
    (tmp_path / "spool" / "1.jsonl").write_text("{}\n")
    (tmp_path / "spool" / "0.torn").write_text("{\n")
    found = findings(run("doctor"))["spool"]
    assert [level for level, _ in found] == ["warning", "warning"]
    assert "1 waiting file in" in found[0][1]
    assert "1 torn file in" in found[1][1]


def test_a_spool_that_others_may_read_is_a_warning(run, store, tmp_path):
    spool = tmp_path / "spool"
    spool.mkdir(mode=0o755)
    (spool / "1700000000-host-17-0a1b2c3d.refused").touch(0o644)
    told = findings(run("doctor"))["spool"][0]
    assert told[0] == "warning"
    assert f"list {spool} and read 1 file with whole messages" in told[1]
    assert f"chmod -R go= {spool}" in told[1]
    spool.chmod(0o700)
    assert "other users" not in findings(run("doctor"))["spool"][0][1]


def test_a_store_file_that_others_may_read_is_a_warning(run, store, path):
    assert len(findings(run("doctor"))["store"]) == 1
    path.chmod(0o644)
    level, text = findings(run("doctor"))["store"][1]
    assert level == "warning"
    assert f"other users can read {path}" in text


def test_an_unwritable_spool_is_an_error(run, store, tmp_path):
    (tmp_path / "spool").write_text("a file, no directory")
    result = run("doctor")
    assert result.exit_code == 1
    assert "letters would go to the log" in findings(result)["spool"][0][1]


def test_no_task_with_our_base_is_a_warning(run, app):
    del app.tasks["shop.charge"]
    level, text = findings(run("doctor"))["tasks"][0]
    assert level == "warning"
    assert "base=DLQTask" in text


def test_tasks_that_cannot_be_imported(run, app):
    app.conf.imports = ["shop.no_such_module"]
    result = run("doctor")
    assert result.exit_code == 1
    assert "cannot be imported" in findings(result)["tasks"][0][1]


def test_tasks_with_another_base_are_named(run, app):
    app.task(name="shop.plain", shared=False)(do_nothing)
    found = findings(run("doctor"))["tasks"]
    assert ("ok", "shop.plain: another base class, so not captured") in found


def test_tasks_that_are_not_captured_are_an_error(run, app):
    for name in ("shop.odd", "shop.strange"):
        app.task(name=name, base=DLQTask, Request=dict, shared=False)(do_nothing)
    result = run("doctor")
    assert result.exit_code == 1
    [(level, text)] = findings(result)["capture"]
    assert level == "error"
    assert text.startswith("shop.odd, shop.strange: its Request class dict cannot be combined")


def test_a_custom_strategy_is_a_warning(run, app):
    app.task(name="shop.odd", base=DLQTask, Strategy=do_nothing, shared=False)(do_nothing)
    [(level, text)] = findings(run("doctor"))["capture"]
    assert (level, text.split(",")[0]) == ("warning", "shop.odd: it has a Strategy of its own")


def test_long_lists_of_tasks_are_cut():
    assert named(f"t{number}" for number in range(9)) == "t0, t1, t2, t3, t4 and 4 more"
