"""What a user installs: the wheel, alone with its runtime dependencies, in an environment of its own."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest
from support.installed import APP, ROOT, Installed, build_wheel, metadata, outside
from uv import find_uv_bin

import celery_dlq
from celery_dlq.cli.admin.help import find_pages

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

#: How a typed project lives with Celery, which has no types; the last section only saves time.
MYPY_INI = """
[mypy]
strict = True
disallow_untyped_decorators = False

[mypy-celery.*,kombu.*,billiard.*]
ignore_missing_imports = True

[mypy-sqlalchemy.*,alembic.*,rich.*,click.*]
follow_imports = skip
"""


@pytest.fixture(scope="session")
def installed(tmp_path_factory):
    home = tmp_path_factory.mktemp("installed")
    wheel = build_wheel(home)
    # Within a second; pip needs ten.
    for words in (
        ("venv", "--python", sys.executable, home / "venv"),
        ("pip", "install", "--python", home / "venv", wheel),
    ):
        subprocess.run([find_uv_bin(), "--quiet", *words], env=outside(), check=True)
    return Installed(home / "venv" / "bin", wheel)


@pytest.fixture
def project(tmp_path):
    return with_app(tmp_path)


@pytest.fixture
def dlq(installed, project):
    return runs(installed, project)


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    return with_app(tmp_path_factory.mktemp("project"))


@pytest.fixture(scope="module")
def made(installed, home):
    """Runs commands in a project whose store was made by hand; and the ends of the first two."""
    dlq = runs(installed, home)
    return dlq, dlq("db", "current"), dlq("db", "upgrade")


def with_app(folder: Path) -> Path:
    (folder / "app.py").write_text(APP)
    return folder


def runs(installed: Installed, project: Path):
    def dlq(*words: str, **variables: str) -> subprocess.CompletedProcess[str]:
        ended = installed.run("celery", "-A", "app", "dlq", *words, cwd=project, **variables)
        assert "Traceback" not in ended.stdout + ended.stderr
        return ended

    return dlq


def contents(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


def test_the_wheel_is_the_package_and_nothing_else(installed):
    files = {name for name in contents(installed.wheel) if ".dist-info/" not in name}
    package = {name for name in files if not name.startswith("celery_dlq/docs/")}
    on_disk = {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "celery_dlq").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert package == on_disk | {"pytest_celery_dlq.py"}
    assert "celery_dlq/py.typed" in package
    assert "celery_dlq/store/migrations/env.py" in package
    assert "celery_dlq/store/migrations/versions/0025_initial.py" in package
    pages = {f"celery_dlq/{path.relative_to(ROOT).as_posix()}" for path in find_pages().values()}
    assert files - package == pages


def test_nothing_large_has_come_along(installed):
    # A sixth are the pages that `dlq help` shows, which about fifty errors name.
    assert installed.wheel.stat().st_size < 1_500_000


def test_the_links_of_the_readme_lead_somewhere_on_pypi(installed):
    links = re.findall(r"\]\(([^)\s]+)\)", metadata(installed.wheel))
    assert len(links) > 20
    assert [link for link in links if not link.startswith("https://")] == []
    ours = [link for link in links if "/celery-dlq/celery-dlq/" in link]
    pages = [re.sub(r".*/(?:blob|raw)/v[\d.]+/", "", link).partition("#")[0] for link in ours]
    assert [page for page in pages if not (ROOT / page).is_file()] == []


def test_the_version_is_the_same_everywhere(installed, tmp_path):
    [stated] = re.findall(r"^Version: (.+)$", metadata(installed.wheel), re.MULTILINE)
    changelog = (ROOT / "CHANGELOG.md").read_text()
    newest = re.search(r"^## \[?v?(\d+\.\d+\.\d+[^\s\]]*)", changelog, re.MULTILINE)
    assert newest is not None
    assert stated == celery_dlq.__version__ == newest[1]
    assert installed.python("import celery_dlq; print(celery_dlq.__version__)", tmp_path) == stated


def test_the_licence_the_command_and_the_pytest_plugin_come_along(installed):
    assert any(name.endswith("/LICENSE") for name in contents(installed.wheel))
    entry_points = metadata(installed.wheel, "entry_points.txt")
    assert "[celery.commands]\ndlq = celery_dlq.cli:dlq" in entry_points
    assert "[pytest11]\npytest_celery_dlq = pytest_celery_dlq" in entry_points


def test_only_the_runtime_dependencies_are_installed(installed, tmp_path):
    code = "import importlib.metadata as m; print(*(d.name.lower() for d in m.distributions()))"
    names = set(installed.python(code, tmp_path).split())
    assert {"celery", "kombu", "sqlalchemy", "alembic", "click", "rich"} <= names
    extras = {"psycopg", "psycopg-binary", "psycopg2", "pymysql", "mysqlclient", "redis", "flower",
              "tornado", "prometheus-client", "prometheus_client", "pytest", "hypothesis"}  # fmt: skip
    assert not names & extras


def test_an_exception_is_judged_without_an_app(installed, tmp_path):
    code = "import celery_dlq; print(celery_dlq.decide(ConnectionError()).verdict.value)"
    assert installed.python(code, tmp_path) == "transient"


def test_a_producer_does_not_pay_for_the_store_or_the_screen(installed, project):
    code = """
import json, sys
from app import charge
charge.delay(17)
print(json.dumps(sorted({name.partition(".")[0] for name in sys.modules})))
"""
    loaded = set(json.loads(installed.python(code, project)))
    assert "celery_dlq" in loaded
    assert not loaded & {"sqlalchemy", "alembic", "rich"}


def test_the_help_page_names_every_command(dlq):
    ended = dlq("--help")
    assert ended.returncode == 0
    for command in ("list", "show", "groups", "stats", "explain", "redrive", "db", "doctor"):
        assert re.search(rf"^  {command} ", ended.stdout, re.MULTILINE)


def test_the_schema_is_said_to_be_missing_and_made_by_hand(made):
    _, before, upgrade = made
    assert (before.returncode, upgrade.returncode, upgrade.stderr) == (3, 0, "")
    assert "dlq db upgrade" in before.stderr


def test_a_new_store_is_looked_at(made, home):
    dlq, *_ = made
    for words in (("list",), ("groups",), ("stats",), ("db", "current")):
        ended = dlq(*words)
        assert (ended.returncode, ended.stderr) == (0, ""), words
    assert (home / "store.sqlite3").exists()


def test_the_documentation_is_shown_by_topic(dlq):
    topics = dlq("help")
    listed = [line.split()[0] for line in topics.stdout.splitlines()[1:]]
    assert (topics.returncode, listed) == (0, [*find_pages()])
    page = dlq("help", "repair-letters")
    assert (page.returncode, page.stderr) == (0, "")
    assert page.stdout.startswith("# ")
    unknown = dlq("help", "setings")
    assert (unknown.returncode, unknown.stdout) == (2, "")
    assert "did you mean 'settings'?" in unknown.stderr


def test_an_error_names_a_page_that_can_be_shown(dlq):
    wrong = dlq("list", CELERY_DLQ_STORE_URL="nonsense")
    [topic] = re.findall(r"`celery dlq help ([\w-]+)`", wrong.stderr)
    assert dlq("help", topic).returncode == 0


def test_a_type_is_explained(dlq):
    ended = dlq("explain", "ConnectionError")
    assert ended.returncode == 0
    assert "transient" in ended.stdout


def test_the_doctor_finds_nothing_wrong(made):
    dlq, *_ = made
    ended = dlq("doctor")
    assert ended.returncode == 0, ended.stdout
    assert "1 task with base=DLQTask" in ended.stdout


def test_a_driver_that_is_missing_is_named_with_its_extra(dlq):
    for url, extra in (("postgresql://db/shop", "postgres"), ("mysql://db/shop", "mysql")):
        ended = dlq("list", CELERY_DLQ_STORE_URL=url)
        assert ended.returncode == 3
        assert re.search(rf"pip install 'celery-dlq\[{extra}\]'", ended.stderr)


#: Percent of the names in all modules that have the same type in every type checker. Classes that derive from
#: those of Celery, which has no types, do not; nor does a function that takes one of them.
TYPED = 97.5


def test_the_types_are_complete(installed, tmp_path):
    pytest.importorskip("basedpyright")
    # Extras are needed, too: without Flower, the classes of the tab have unknown bases.
    home = tmp_path / "venv"
    venv.create(home, with_pip=False, symlinks=True)
    [packages] = home.glob("lib/python*/site-packages")
    with zipfile.ZipFile(installed.wheel) as archive:
        archive.extractall(packages)
    (packages / "extras.pth").write_text(f"{sysconfig.get_path('purelib')}\n")
    ended = subprocess.run(
        [sys.executable, "-m", "basedpyright", "--outputjson",
         "--verifytypes", "celery_dlq", "--ignoreexternal"],
        cwd=tmp_path, env=outside() | {"PATH": f"{home / 'bin'}:{os.environ['PATH']}"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    found = json.loads(ended.stdout)["typeCompleteness"]
    untyped = [one["name"] for one in found["symbols"] if not one["isTypeKnown"]]
    assert len(found["symbols"]) > 7500
    assert 100 * found["completenessScore"] >= TYPED, untyped


def test_a_typed_project_is_checked_against_the_installed_package(installed, tmp_path):
    pytest.importorskip("mypy")
    (tmp_path / "mypy.ini").write_text(MYPY_INI)
    ended = subprocess.run(
        [sys.executable, "-m", "mypy", "--config-file", tmp_path / "mypy.ini",
         "--cache-dir", tmp_path / "cache", "--python-executable", installed.bin / "python",
         ROOT / "tests" / "typing" / "api.py"],
        cwd=tmp_path, env=outside(), capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (ended.returncode, ended.stderr) == (0, ""), ended.stdout
