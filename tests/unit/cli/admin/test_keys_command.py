"""``dlq keys`` and the doctor's line about keys, over a store whose counts are given."""

from __future__ import annotations

import base64
import sys
from contextlib import nullcontext

import pytest

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
        self.steps = []
        self.error = None

    def counts(self):
        return self.letters

    def person_counts(self):
        return self.persons

    def left(self):
        others = {**self.letters, LABEL: 0, "@": 0}
        return sum(others.values()) + sum({**self.persons, LABEL: 0}.values()) - sum(self.steps)

    def rotate(self, limit):
        if self.error is not None and self.steps:
            raise self.error
        step = min(limit, self.left() - self._stays)
        if step:
            self.steps.append(step)
        return step


@pytest.fixture
def keys(queue, store, monkeypatch):
    queue.keyring = Keyring({"new": NEW, "old": OLD})
    monkeypatch.setattr("celery_dlq.cli.admin.keys._STEP", 10)

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
    result = run("keys", "list")
    assert result.exit_code == 0
    assert result.stderr == f"Add to dlq_encryption_keys, or their letters cannot be read: {GONE}\n"


def test_without_a_ring_all_keys_are_missing(read, run, queue, keys):
    keys({LABEL: 7, "": 1})
    queue.keyring = None
    assert [row["state"] for row in read("keys")] == ["missing", "not encrypted"]
    keys({})
    assert run("keys").stdout == "No letters, and no keys.\n"


def test_a_rotation_says_how_far_it_is_and_that_nothing_is_left(run, keys):
    role = keys({LABEL: 7, OLDER: 20, "": 1}, {OLDER: 4})
    result = run("keys", "rotate")
    assert (result.exit_code, role.steps) == (0, [10, 10, 5])
    assert result.stdout == f"25 letters and keys encrypted with {LABEL}; 0 left.\n"
    assert f"20 of 25: encrypted with {LABEL}" in result.stderr
    assert run("keys", "rotate").stdout == f"0 letters and keys encrypted with {LABEL}; 0 left.\n"


def test_what_cannot_be_rotated_is_left_and_said(run, keys):
    keys({OLDER: 5, GONE: 3}, stays=3)
    result = run("keys", "rotate")
    assert result.exit_code == 4
    assert result.stdout.endswith("; 3 left.\n")
    assert "their keys are missing; run: celery dlq keys" in result.stderr


def test_a_rotation_that_is_stopped_continues_when_it_runs_again(run, keys, monkeypatch):
    role = keys({OLDER: 25})
    role.error = StoreUnavailable()
    result = run("keys", "rotate")
    assert (result.exit_code, role.steps) == (3, [10])
    role.error = None
    assert run("keys", "rotate").stdout.startswith("15 letters and keys")
    assert role.steps == [10, 10, 5]


def test_ctrl_c_stops_after_a_step(run, keys, monkeypatch):
    keys({OLDER: 25})
    answers = iter([False, True])
    monkeypatch.setattr(
        "celery_dlq.cli.admin.keys.stopping_on_interrupt",
        lambda: nullcontext(lambda: next(answers)),
    )
    result = run("keys", "rotate")
    assert result.exit_code == 130
    assert result.stdout.endswith("; 15 left.\n")
    assert result.stderr.endswith("run it again to continue.\n")


def test_without_a_ring_there_is_nothing_to_rotate_to(run, queue, keys):
    role = keys({OLDER: 5})
    queue.keyring = None
    result = run("keys", "rotate")
    assert (result.exit_code, role.steps) == (1, [])
    assert "set dlq_encryption_keys. See `celery dlq help encryption`" in result.stderr


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
