"""``dlq keys`` and the doctor's line about keys, over a store whose counts are given."""

from __future__ import annotations

import base64
import sys

import pytest
from support.factories import letter

from celery_dlq.base.sealing import Keyring
from celery_dlq.errors import StoreUnavailable

NEW, OLD = b"n" * 32, b"o" * 32
RING = {name: base64.b64encode(key).decode() for name, key in (("new", NEW), ("old", OLD))}
LABEL, OLDER = Keyring({"new": NEW, "old": OLD}).labels
GONE = "gone.0a1b2c3d"


class Keys:
    """Letters and keys of persons by label, as the store counts them."""

    def __init__(self, letters, persons=(), stays=0):
        self.letters, self.persons, self._stays = dict(letters), dict(persons), stays
        self.rows = 0
        self.who, self.error = "", None

    def counts(self):
        return {
            label: (self.letters.get(label, 0), self.persons.get(label, 0))
            for label in {**self.letters, **self.persons}
        }

    def left(self):
        others = {**self.letters, LABEL: 0, "@": 0}
        return sum(others.values()) + sum({**self.persons, LABEL: 0}.values()) - self.rows

    def rotate(self, *, who, on_progress):
        self.who = who
        while step := min(10, self.left() - self._stays):
            self.rows += step
            on_progress(self.rows)
            if self.error is not None:
                raise self.error
        return self.rows


@pytest.fixture
def keys(queue, store, monkeypatch):
    queue.keyring = Keyring({"new": NEW, "old": OLD})
    monkeypatch.setattr("celery_dlq.cli.admin.keys._TOLD", 20)

    def keys(letters, persons=(), **options):
        store.keys = Keys(letters, persons, **options)
        return store.keys

    return keys


@pytest.fixture
def found(run):
    def found():
        lines = [line.split(maxsplit=2) for line in run("doctor").stdout.splitlines()[1:]]
        return [(level, text) for name, level, text in lines if name == "keys"]

    return found


def test_the_list_has_each_key_of_the_ring_and_each_of_a_letter(read, run, keys):
    keys({LABEL: 7, GONE: 3, "@": 2, "": 1}, {OLDER: 4})
    assert [(*row.values(),) for row in read("keys")] == [
        (LABEL, "first", 7, 0),
        (OLDER, "next", 0, 4),
        (GONE, "missing", 3, 0),
        ("@", "each by its person's key", 2, 0),
        ("", "not encrypted", 1, 0),
    ]


def test_without_a_ring_all_keys_are_missing(read, run, queue, keys):
    keys({LABEL: 7, "": 1})
    queue.keyring = None
    assert [row["state"] for row in read("keys")] == ["missing", "not encrypted"]
    keys({})
    assert run("keys").stdout == "No letters, and no keys.\n"


def test_a_rotation_says_how_far_it_is_and_that_nothing_is_left(run, keys, monkeypatch):
    monkeypatch.setattr("celery_dlq.cli.session.getpass.getuser", lambda: "ada")
    role = keys({LABEL: 7, OLDER: 20, "": 1}, {OLDER: 4})
    result = run("keys", "rotate")
    assert (result.exit_code, role.rows, role.who) == (0, 25, "ada")
    assert result.stdout == "25 rows encrypted with the first key; 0 letters and keys left.\n"
    assert result.stderr == "20 rows encrypted with the first key; letters come last.\n"


def test_what_cannot_be_rotated_is_left_and_said(run, keys):
    keys({OLDER: 5, GONE: 3}, stays=3)
    result = run("keys", "rotate")
    assert result.exit_code == 4
    assert result.stdout.endswith("; 3 letters and keys left.\n")
    assert "their keys are missing; run: celery dlq keys" in result.stderr


@pytest.mark.parametrize(("error", "status"), [(StoreUnavailable(), 3), (KeyboardInterrupt(), 130)])
def test_a_rotation_that_is_cut_off_continues_when_it_runs_again(run, keys, error, status):
    role = keys({OLDER: 25})
    role.error = error
    assert (run("keys", "rotate").exit_code, role.rows) == (status, 10)
    role.error = None
    assert run("keys", "rotate").exit_code == 0
    assert role.left() == 0


def test_a_rotation_of_real_letters(run, read, queue, store):
    store.letters.save([letter("a"), letter("b")])
    queue.keyring = store.transactions.ring = Keyring({"new": NEW, "old": OLD})
    assert [row["state"] for row in read("keys")] == ["first", "next", "not encrypted"]
    assert run("keys", "rotate").exit_code == 0
    assert [(row["key"], row["letters"]) for row in read("keys")] == [(LABEL, 2), (OLDER, 0)]
    [row] = read("audit", "--act", "rotate")
    assert row["detail"] == {"key": LABEL}


def test_without_a_ring_there_is_nothing_to_rotate_to(run):
    result = run("keys", "rotate")
    assert (result.exit_code, "set dlq_encryption_keys" in result.stderr) == (1, True)


@pytest.mark.parametrize(
    ("given", "error"),
    [({"new": "short"}, "is not 32 bytes in base64"), ("no.such.function", "the function failed")],
)
def test_a_wrong_ring_ends_the_command(run, app, given, error):
    app.conf.dlq_encryption_keys = given
    result = run("keys", "rotate")
    assert (result.exit_code, error in result.stderr) == (1, True)


def test_the_doctor_counts_letters_by_key(found, keys):
    keys({LABEL: 1_200, "@": 2})
    assert found() == [
        ("ok", f"letters: 1,200 with {LABEL}, 0 with {OLDER}, 2 with keys of persons")
    ]


def test_the_doctor_names_missing_keys_and_letters_in_clear(found, run, keys):
    keys({LABEL: 1, GONE: 3, "": 2}, {GONE: 1})
    [(error, missing), (level, clear), (_ok, _by_key)] = found()
    assert (error, level) == ("error", "warning")
    assert f"the key {GONE} is not in dlq_encryption_keys" in missing
    assert "3 letters and 1 key of persons" in missing
    assert clear == "2 letters not encrypted; to encrypt them, run: celery dlq keys rotate"
    assert run("doctor").exit_code == 1


def test_the_doctor_warns_about_letters_that_this_app_cannot_read(found, queue, keys):
    keys({LABEL: 3, "": 1})
    queue.keyring = None
    [(level, text)] = found()
    assert (level, text.startswith("3 encrypted letters, but dlq_encryption_keys")) == (
        "warning",
        True,
    )
    keys({"": 1})
    assert found() == []


def test_the_doctor_says_that_the_package_is_missing(run, app, monkeypatch):
    app.conf.dlq_encryption_keys = RING
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives.ciphers.aead", None)
    result = run("doctor")
    assert (result.exit_code, "pip install 'celery-dlq[crypto]'" in result.stdout) == (1, True)
