"""The rights that docs/howto/upgrade.md gives: an owner upgrades, a worker does all else, a reader looks."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from celery import Celery
from celery.bin.base import CLIContext
from click.testing import CliRunner
from sqlalchemy import create_engine, text
from support.factories import letter
from support.servers.databases import mysql_database, postgres_database

from celery_dlq import DLQTask
from celery_dlq.cli import dlq
from celery_dlq.store.sql import SQLStore

PAGE = Path(__file__).parents[3] / "docs/howto/upgrade.md"

#: What the page says that a reader may run, each with arguments.
LOOKS = (
    "list", "show {id}", "stats", "check --max-depth 9", "db current", "groups list", "groups show {group}",
    "audit", "audit verify", "operations list", "auto list", "auto history", "explain {id}",
    "explain {group}", "retention plan",
)  # fmt: skip

#: Acts of each kind on letters, groups and what is deleted.
ACTS = (
    "groups note {group} text", "groups assign {group} ann", "groups ignore {group}", "groups reopen {group}",
    "groups resolve {group}", "groups regroup", "reclassify {id} --yes", "auto pause", "auto resume",
    "discard {id} --why x", "discard {id} --undo", "discard {id} --why x", "delete {id} --yes",
    "forget --where args.0=7 --why x --yes", "retention run",
)  # fmt: skip


def statements(heading: str, user: str) -> list[str]:
    """The page's statements for ``user`` below ``heading``; for a query with ``\\gexec``, the query."""
    part = PAGE.read_text().partition(f"### {heading}\n")[2].partition("\n### ")[0]
    found = [
        one.strip()
        for block in re.findall(r"^```(?:sql)?\n(.*?)^```$", part, re.DOTALL | re.MULTILINE)
        for one in re.split(r";\n|\\gexec\n", block)
    ]
    return [one for one in found if re.search(rf"\b{user}\b", one)]


@contextlib.contextmanager
def users(url: str, heading: str) -> Iterator[Callable[[str], str]]:
    """A function that makes a user of the page, as the administrator at ``url`` does, and returns its URL."""
    name = urlsplit(url).path[1:]
    admin = create_engine(url, isolation_level="AUTOCOMMIT")
    made: list[str] = []

    def make(role: str) -> str:
        user = f"{name}_{role}"
        made.append(user)
        with admin.connect() as connection:
            for statement in statements(heading, f"shop_{role}"):
                own = statement.replace("shop_dlq.", f"{name}.").replace(f"shop_{role}", user)
                found = connection.execute(text(own))
                for (further,) in found.all() if found.returns_rows else ():
                    connection.execute(text(further))
        host = url.partition("@")[2]
        return f"{url.partition('://')[0]}://{user}:change me@{host}".replace(" ", "%20")

    try:
        yield make
    finally:
        with admin.connect() as connection:
            for user in made:
                if heading == "PostgreSQL":
                    connection.execute(text(f"DROP OWNED BY {user}"))
                connection.execute(text(f"DROP USER IF EXISTS {user}"))
        admin.dispose()


@pytest.fixture(params=["PostgreSQL", "MariaDB and MySQL"])
def make_user(request):
    database = postgres_database if request.param == "PostgreSQL" else mysql_database
    with database() as url, users(url, request.param) as make:
        yield make


def _charge(order_id): ...


def app_on(url: str) -> Celery:
    app = Celery("shop", broker="memory://", set_as_current=False)
    app.conf.dlq_store_url = url
    app.task(base=DLQTask, name="shop.charge", shared=False)(_charge)
    return app


def run(url: str, words: str) -> str:
    context = CLIContext(app_on(url), no_color=True, workdir=None)
    ended = CliRunner().invoke(dlq, words.split(), obj=context)
    return "" if ended.exit_code == 0 else f"{words}: {ended.output}{ended.exception!r}"


def test_each_user_has_the_rights_for_its_commands(make_user) -> None:
    owner = make_user("owner")
    assert run(owner, "db upgrade") == ""
    worker, reader = make_user("worker"), make_user("reader")

    store = SQLStore(worker)
    dead = letter(task_id="4711", task="shop.charge")
    store.letters.save([dead])
    names = {"id": dead.task_id, "group": store.letters.get(dead.task_id).fingerprint}
    store.close()

    assert [said for words in LOOKS if (said := run(reader, words.format(**names)))] == []
    assert "denied" in run(reader, f"groups note {names['group']} text")
    assert [said for words in ACTS if (said := run(worker, words.format(**names)))] == []
