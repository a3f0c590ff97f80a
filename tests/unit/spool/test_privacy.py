"""Spool files hold whole messages, so only their owner may read them."""

import os
import stat

import pytest
from support.factories import letter

from celery_dlq.errors import RecordRefused
from celery_dlq.spool.directory import Spool
from celery_dlq.spool.look import exposed_files, is_exposed, is_shared

NAME = "1700000000000000000-host-17-0a1b2c3d"


@pytest.fixture(params=[0o000, 0o022, 0o077], ids=oct, autouse=True)
def umask(request):
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


@pytest.fixture
def spool(tmp_path):
    spool = Spool(tmp_path / "spool")
    yield spool
    spool.close()


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


def modes(path):
    return {mode(file) for file in path.iterdir()}


def refuse(_records):
    raise RecordRefused("no")


def test_the_directory_and_its_files_are_for_their_owner_only(spool):
    spool.append([letter("a")])
    assert mode(spool.directory) == 0o700
    assert modes(spool.directory) == {0o600}


def test_files_that_are_set_aside_are_private(spool):
    spool.append([letter("a")])
    spool.close()
    [path] = spool.files()
    with path.open("ab") as file:
        file.write(b"{torn\n")
    assert [step.refused for step in spool.drain(refuse)] == [1]
    assert {path.suffix for path in spool.directory.iterdir()} == {".refused", ".torn"}
    assert modes(spool.directory) == {0o600}


@pytest.fixture
def opened(tmp_path):
    """A spool whose modes a person has changed."""
    opened = tmp_path / "spool"
    opened.mkdir()
    for suffix in (".jsonl", ".torn", ".refused"):
        path = opened / f"{NAME}{suffix}"
        path.touch()
        path.chmod(0o644)
    opened.chmod(0o755)
    return opened


def test_files_that_others_can_read_are_named(opened):
    (opened / "notes.txt").touch()
    (opened / "notes.txt").chmod(0o644)
    assert {path.suffix for path in exposed_files(opened)} == {".jsonl", ".torn", ".refused"}
    for path in opened.iterdir():
        path.chmod(0o600)
    assert exposed_files(opened) == []


def test_a_link_is_not_followed(opened, tmp_path):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.touch()
    elsewhere.chmod(0o644)
    link = opened / f"{NAME[:-1]}0.jsonl"
    link.symlink_to(elsewhere)
    assert link not in exposed_files(opened)


@pytest.mark.parametrize(
    ("chosen", "exposed", "shared"),
    [(0o700, False, False), (0o755, True, False), (0o1777, True, True), (0o2770, True, True)],
)
def test_a_directory_may_be_shared_on_purpose(opened, chosen, exposed, shared):
    opened.chmod(chosen)
    assert (is_exposed(opened), is_shared(opened)) == (exposed, shared)


def test_an_existing_directory_keeps_its_mode(spool, opened):
    spool.append([letter("a")])
    list(spool.drain(refuse))
    assert mode(opened) == 0o755


def test_a_directory_that_does_not_exist_has_no_files(tmp_path):
    assert exposed_files(tmp_path / "none") == []
