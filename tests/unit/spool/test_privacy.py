"""Spool files hold whole messages, so only their owner may read them."""

import os
import stat

import pytest
from support.factories import letter

from celery_dlq.errors import RecordRefused
from celery_dlq.spool import Spool, directory, exposed_files

OLD = "1700000000000000000-host-17-0a1b2c3d"


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
def old(tmp_path):
    """A spool as an earlier version made it, with a umask of 022."""
    old = tmp_path / "spool"
    old.mkdir()
    for suffix in (".jsonl", ".torn", ".refused"):
        path = old / f"{OLD}{suffix}"
        path.touch()
        path.chmod(0o644)
    old.chmod(0o755)
    return old


@pytest.mark.parametrize("use", [lambda spool: list(spool.drain(refuse)),
                                 lambda spool: spool.append([letter("a")])])  # fmt: skip
def test_the_spool_of_an_earlier_version_is_made_private_when_it_is_used(spool, old, use):
    assert len(exposed_files(old)) == 3
    use(spool)
    assert mode(old) == 0o700
    assert modes(old) == {0o600}


def test_a_directory_that_holds_other_files_keeps_its_mode(spool, old):
    (old / "notes.txt").touch()
    (old / "notes.txt").chmod(0o644)
    spool.append([letter("a")])
    assert mode(old) == 0o755
    assert mode(old / "notes.txt") == 0o644
    assert exposed_files(old) == []


@pytest.mark.parametrize("chosen", [0o1777, 0o2770], ids=oct)
def test_a_directory_that_is_shared_on_purpose_keeps_its_mode(spool, old, chosen):
    old.chmod(chosen)
    spool.append([letter("a")])
    assert mode(old) == chosen
    assert exposed_files(old) == []


def test_a_file_of_another_user_keeps_its_mode(spool, old, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 65_534)
    spool.append([letter("a")])
    assert mode(old) == 0o755
    assert len(exposed_files(old)) == 3


def test_a_link_is_not_followed(spool, old, tmp_path):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.touch()
    elsewhere.chmod(0o644)
    (old / f"{OLD[:-1]}0.jsonl").symlink_to(elsewhere)
    spool.append([letter("a")])
    assert mode(elsewhere) == 0o644
    assert exposed_files(old) == []


def test_the_modes_are_looked_at_once(spool, old, monkeypatch):
    seen = []
    monkeypatch.setattr(directory, "make_private", seen.append)
    for _ in range(3):
        spool.append([letter("a")])
        list(spool.drain(lambda _records: None))
    assert seen == [old]
