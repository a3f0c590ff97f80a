"""Who may do what in a real Flower: the same on each version, with nothing configured for the tab."""

from __future__ import annotations

import importlib.metadata
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from flowers import ROOT, Guest, flower
from support.factories import letter
from tornado.web import create_signed_value

from celery_dlq.model.states import State
from celery_dlq.store.sql import SQLStore

pytestmark = [pytest.mark.slow, pytest.mark.nightly, pytest.mark.timeout(300)]


#: The directory of the Flower versions that are not installed.
CACHE = ROOT / ".cache" / "flower"

VERSIONS = ("2.0.1", "2.1.0", "2.2.0")

SECRET = "a cookie's secret"

EVIL = {"Origin": "https://evil.example"}

#: How a Flower is started: options, environment, and the prefix of its addresses.
WAYS = {
    "no login": ([], {}, ""),
    "opened": ([], {"FLOWER_UNAUTHENTICATED_API": "true"}, ""),
    "basic": (["--basic_auth=ann:secret"], {}, ""),
    "oauth": (["--auth=.*@example.com", "--url_prefix=ops/x", f"--cookie_secret={SECRET}"], {}, "/ops/x"),
    "read only": (["--basic_auth=ann:secret", "--read_only"], {}, ""),
}  # fmt: skip


def ways(*names: str) -> pytest.MarkDecorator:
    """Run a test on each version that can be started in these ways."""
    both = [
        pytest.param((version, way), id=f"{version}-{way}")
        for version in VERSIONS
        for way in names or WAYS
        if way != "read only" or version >= "2.1"
    ]
    return pytest.mark.parametrize("started", both, indirect=True, scope="module")


@pytest.fixture(scope="module")
def started(request: pytest.FixtureRequest) -> tuple[str, str]:
    """A version of Flower, and how it is started."""
    version, way = request.param
    return str(version), str(way)


@pytest.fixture(scope="module")
def way(started: tuple[str, str]) -> str:
    """How Flower is started."""
    return started[1]


@pytest.fixture(scope="module")
def place(started: tuple[str, str]) -> Path | None:
    """The directory from which this version is imported; None for the installed one."""
    version, _ = started
    if importlib.metadata.version("flower") == version:
        return None
    found = CACHE / version
    if not found.exists():
        _fetch(version, found)
    return found


def _fetch(version: str, to: Path) -> None:
    to.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=to.parent) as made:
        ended = subprocess.run(
            [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps",
             f"--target={made}/flower", f"flower=={version}"],
            capture_output=True, text=True, timeout=240, check=False,
        )  # fmt: skip
        if ended.returncode:
            message = f"flower {version} cannot be had: {ended.stderr.strip()}"
            pytest.fail(message) if os.environ.get("CI") == "true" else pytest.skip(message)
        if not to.exists():
            shutil.move(f"{made}/flower", to)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SQLStore]:
    """Letters for each act."""
    store = SQLStore(f"sqlite:///{tmp_path_factory.mktemp('flower')}/store.sqlite3")
    store.check_schema()
    yield store
    store.close()


@pytest.fixture(scope="module")
def guest(
    started: tuple[str, str],
    place: Path | None,
    store: SQLStore,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Guest]:
    """A visitor of a Flower of this version, started this way, whom it does not know."""
    version, way = started
    options, environ, root = WAYS[way]
    with flower(
        tmp_path_factory.mktemp("shop"), *options, root=root, path=[place] if place else [],
        environ={"CELERY_DLQ_STORE_URL": str(store.database.url), **environ},
    ) as (guest, _process):  # fmt: skip
        # Only 2.1 and later have a theme: it is this version.
        assert (guest.get("/static/js/theme.js").status_code == 200) == (version >= "2.1")
        yield guest


@pytest.fixture
def dead(store: SQLStore, request: pytest.FixtureRequest) -> str:
    """A letter of this test's own."""
    task_id = f"t{abs(hash(request.node.nodeid)):x}"
    store.letters.save([letter(task_id)])
    return task_id


def ann_of(guest: Guest) -> Guest:
    return Guest(guest.base, guest.root, ("ann", "secret"))


def bob_of(guest: Guest, address: str = "bob@example.com") -> Guest:
    cookie = create_signed_value(SECRET, "user", address).decode()
    return Guest(guest.base, guest.root, cookies={"user": cookie})


def is_untouched(store: SQLStore, task_id: str) -> bool:
    found = store.letters.get(task_id)
    named = {one for row in store.operations.find(limit=500) for one in row.wanted.ids}
    return found is not None and found.state is State.DEAD and task_id not in named


def known(way: str, guest: Guest) -> Guest:
    """A visitor who may look, if Flower is started this way."""
    if way in {"no login", "opened"}:
        return Guest(guest.base, guest.root)
    return bob_of(guest) if way == "oauth" else ann_of(guest)


@ways()
def test_the_tab_is_there_and_pages_are_shown(guest: Guest, way: str, dead: str) -> None:
    visitor = known(way, guest)
    tasks = visitor.get("/tasks")
    assert f'href="{guest.root}/dead-letters"' in tasks.text
    page = visitor.get(f"/dead-letters/letters/{dead}")
    assert (page.status_code, "bad currency" in page.text) == (200, True)
    assert visitor.get("/dead-letters/static/dlq.css").status_code == 200
    for answer in (page, visitor.get("/api/dead-letters"), visitor.get("/dead-letters/letters")):
        assert not [name for name in answer.headers if name.startswith("access-control")]


@ways("basic", "oauth", "read only")
def test_a_stranger_sees_nothing_and_changes_nothing(
    guest: Guest, way: str, dead: str, store: SQLStore
) -> None:
    page = guest.get(f"/dead-letters/letters/{dead}")
    if way == "oauth":
        assert page.status_code == 302
        assert page.headers["Location"].startswith("/ops/x/login?next=%2Fops%2Fx%2Fdead-letters")
        eve = bob_of(guest, "eve@elsewhere.org")
        assert eve.get("/dead-letters/letters").status_code == 302
        assert eve.get("/api/dead-letters").status_code == 401
    else:
        assert page.status_code == 401
    assert guest.get("/api/dead-letters").status_code == 401
    assert guest.redrive(dead) == 401
    assert guest.discard(dead) in {401, 403}
    assert is_untouched(store, dead)


@ways("no login")
def test_without_authentication_nothing_is_changed(
    guest: Guest, way: str, dead: str, store: SQLStore
) -> None:
    assert "--basic_auth" in guest.get("/dead-letters/letters").text
    assert guest.get("/api/dead-letters").status_code == 401
    assert (guest.redrive(dead), guest.discard(dead)) == (401, 403)
    assert is_untouched(store, dead)


@ways("read only")
def test_a_read_only_flower_changes_nothing(
    guest: Guest, way: str, dead: str, store: SQLStore
) -> None:
    ann = ann_of(guest)
    assert ann.get("/api/dead-letters").status_code == 200
    assert (ann.redrive(dead), ann.discard(dead)) == (403, 403)
    assert is_untouched(store, dead)


@ways("opened", "basic", "oauth")
def test_a_visitor_with_permission_changes_something(
    guest: Guest, way: str, dead: str, store: SQLStore
) -> None:
    visitor = known(way, guest)
    token = {"X-XSRFToken": visitor.token()} if way == "oauth" else {}
    assert visitor.redrive(dead, token) == 202
    assert visitor.discard(dead) == 303
    who = {
        "opened": "anonymous at 127.0.0.1 (flower)",
        "basic": "ann (flower)",
        "oauth": "bob@example.com",
    }[way]
    found = store.letters.get(dead)
    assert found is not None
    assert (found.state, found.closed_by) == (State.DISCARDED, who)


@pytest.mark.parametrize(
    "headers",
    [EVIL, {"Sec-Fetch-Site": "cross-site"}, {"Sec-Fetch-Site": "same-origin"}, {"Origin": "null"}],
    ids=["another origin", "another site", "no token", "no origin"],
)
@ways("opened", "basic", "oauth")
def test_a_forged_request_of_a_browser_changes_nothing(
    guest: Guest, way: str, dead: str, store: SQLStore, headers: dict[str, str]
) -> None:
    assert known(way, guest).redrive(dead, headers) == 403
    assert is_untouched(store, dead)


@ways("opened", "basic", "oauth")
def test_a_token_does_not_help_another_site(
    guest: Guest, way: str, dead: str, store: SQLStore
) -> None:
    visitor = known(way, guest)
    token = {"X-XSRFToken": visitor.token()}
    assert visitor.redrive(dead, {**token, **EVIL}) == 403
    assert visitor.redrive(dead, {"X-XSRFToken": "2|0|0|0"}) == 403
    assert visitor.discard(dead, proven=False) == 403
    assert is_untouched(store, dead)
    assert (
        visitor.redrive(dead, {**token, "Origin": guest.base, "Sec-Fetch-Site": "same-origin"})
        == 202
    )
