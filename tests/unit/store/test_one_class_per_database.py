"""A database differs from others in its class in ``celery_dlq/store/database/dialects``, and nowhere else."""

from __future__ import annotations

import ast
from pathlib import Path

import celery_dlq
from celery_dlq.store.database.dialects import SUPPORTED

PACKAGE = Path(celery_dlq.__file__).parent
DATABASE = PACKAGE / "store" / "database"
#: Released migrations keep their own code. Rules classify the errors of any driver of an application.
ELSEWHERE = (DATABASE, PACKAGE / "store" / "migrations" / "versions", PACKAGE / "classify")

NAMES = {name for dialect in SUPPORTED for name in (dialect.name, *dialect.schemes)}


def _is_name(node):
    """A string that is the name of a database: to be compared, looked up, or passed on."""
    return isinstance(node, ast.Constant) and node.value in NAMES


def _is_question(node):
    """SQLAlchemy's name for the dialect, also where it is only handed on."""
    return (
        isinstance(node, ast.Attribute)
        and node.attr == "name"
        and ast.unparse(node.value).split(".")[-1] == "dialect"
    )


def _is_import(node):
    """An import of SQLAlchemy's own dialects, or of one of ours past the lookup."""
    if not isinstance(node, ast.ImportFrom):
        return False
    module = node.module or ""
    ours = {f"celery_dlq.store.database.dialects.{dialect.name}" for dialect in SUPPORTED}
    return module.startswith("sqlalchemy.dialects") or module in ours


def branches(source, *ways):
    """The lines of ``source`` that ask which database it is, in one of ``ways``."""
    for node in ast.walk(ast.parse(source)):
        if any(is_way(node) for is_way in ways or (_is_name, _is_question, _is_import)):
            yield f"{node.lineno}: {ast.unparse(node)}"


def test_no_module_outside_asks_which_database_it_is():
    found = [
        f"{path.relative_to(PACKAGE)}:{branch}"
        for path in sorted(PACKAGE.rglob("*.py"))
        if not any(path.is_relative_to(directory) for directory in ELSEWHERE)
        for branch in branches(path.read_text())
    ]
    assert found == []


def test_no_module_inside_asks_either_except_the_classes():
    classes = {f"{dialect.name}.py" for dialect in SUPPORTED}
    found = [
        f"{path.name}:{branch}"
        for path in sorted(DATABASE.rglob("*.py"))
        if path.name not in classes
        for branch in branches(path.read_text(), _is_name)
    ]
    assert found == []


def test_each_way_to_ask_is_found():
    ways = (
        'connection.dialect.name == "sqlite"',
        "_NOW.get(connection.dialect.name)",
        'match kind:\n    case "mysql": pass',
        'found.prefix_with("MATERIALIZED", dialect="postgresql")',
        'url.get_backend_name() in {"mariadb"}',
        "from sqlalchemy.dialects import mysql",
        "from celery_dlq.store.database.dialects.sqlite import SQLite",
    )
    assert [way for way in ways if not list(branches(way))] == []
    assert not list(
        branches('dialect_of(connection).is_file; url = "sqlite:///celery_dlq.sqlite3"')
    )
