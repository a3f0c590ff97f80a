import sys
from importlib.metadata import requires

import pytest
from platforms.pytest_run import NotRun
from platforms.pythons import TARGETS, Environment, Target, find_python, floors
from platforms.results import ROOT
from platforms.table import PLATFORMS

REQUIREMENTS = [
    "celery<5.8,>=5.5",
    'psycopg[binary]>=3.1; extra == "postgres"',
    'pytest>=9; extra == "test"',
    'Django>=4.2; extra == "test"',
    'kombu[sqs]; extra == "test-aws"',
]


def test_the_floors_are_those_of_users():
    assert floors(REQUIREMENTS) == ["celery==5.5", "django==4.2", "psycopg==3.1"]


def test_every_library_of_users_has_a_floor():
    found = {text.partition("==")[0] for text in floors(requires("celery-dlq"))}
    assert {
        "celery",
        "kombu",
        "sqlalchemy",
        "alembic",
        "click",
        "rich",
        "flower",
        "pyarrow",
    } <= found


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_each_target_is_a_platform(target):
    assert target.name in PLATFORMS


def test_the_newest_libraries_are_not_held():
    assert Target("3.13", "newest").constraints() == ()


def test_a_python_of_this_machine_is_found():
    version = "{}.{}".format(*sys.version_info)
    assert find_python(version)
    assert find_python("3.99") is None


def test_a_python_of_debian_runs_in_the_checkout(tmp_path):
    class Suite:
        def inside(self, command, directory):
            return ["inside", str(directory), *command]

    environment = Environment(tmp_path, "/usr/bin/python3.14", Suite())
    assert environment.own_python == [
        "inside", str(ROOT), "env", f"--chdir={ROOT}", f"{tmp_path}/bin/python",
    ]  # fmt: skip


def test_a_library_that_cannot_be_installed_is_named(tmp_path):
    environment = Environment(tmp_path / "venv", sys.executable)
    with pytest.raises(NotRun, match="celery-dlq-is-not-there"):
        environment.install(["celery @ file:///celery-dlq-is-not-there"])
