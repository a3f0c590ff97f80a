"""The public projects that `make projects` knows: where they come from, what adopting changes in them, and
which of their own tests are about tasks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Edit:
    """A change in a file of a project, as the page about adopting says."""

    #: Below the root of the source distribution.
    path: str
    old: str
    new: str


@dataclass(frozen=True)
class Project:
    """A release of a project, as its source distribution on PyPI has it."""

    #: Its name on PyPI.
    name: str
    version: str
    kind: str
    #: What is special about its tasks.
    has: str
    #: The module in ``apps`` that lets its tasks fail.
    app: str
    edits: tuple[Edit, ...]
    #: Arguments of pytest, at the root of its source; none if the distribution has no tests of tasks.
    tests: tuple[str, ...]
    #: What its tests and its worker need in addition.
    also: tuple[str, ...] = ()
    #: Requirements instead of its own: limits that its code does not need, and libraries in C that need files
    #: of the system, and that neither its tests nor its tasks use here.
    overrides: tuple[str, ...] = ()
    #: Lines of the app that adopting changes or adds outside of the project.
    lines_in_app: int = 0
    #: Environment variables of its tests.
    environ: Mapping[str, str] = field(default_factory=dict)
    #: Reason to the tests that end otherwise for it.
    expected: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def lines_changed(self) -> int:
        """Lines that adopting changes or adds."""
        return self.lines_in_app + sum(len(_changed_lines(edit)) for edit in self.edits)


def _changed_lines(edit: Edit) -> list[str]:
    old = edit.old.splitlines()
    return [line for line in edit.new.splitlines() if line.strip() and line not in old]


_IMPORT = "from celery_dlq import DLQTask\n"
_PYTEST = ("redis", "pytest", "pytest-django")


def _without(name: str) -> str:
    return f'{name}; sys_platform == "none"'


def _default_class(path: str, old: str) -> Edit:
    """Makes DLQTask the class of all tasks of the app that ``old`` makes."""
    separator = "" if old.endswith("()") else ", "
    return Edit(path, old, f'{old.removesuffix(")")}{separator}task_cls="celery_dlq:DLQTask")')


_AUTH = "allianceauth"
_EDX = "celery_utils"

PROJECTS: Mapping[str, Project] = {
    project.name: project
    for project in (
        Project(
            "allianceauth", "5.5.0", "Django application",
            "celery-once with a lock backend of its own, `self.retry()`, django-celery-beat",
            "app_allianceauth",
            (
                _default_class(
                    f"{_AUTH}/project_template/project_name/celery.py", "Celery('{{ project_name }}')"
                ),
                Edit(
                    f"{_AUTH}/services/tasks.py", "from celery import shared_task\n",
                    f"from celery import shared_task\n{_IMPORT}",
                ),
                Edit(f"{_AUTH}/services/tasks.py", "QueueOnce(BaseTask)", "QueueOnce(DLQTask, BaseTask)"),
            ),
            (
                f"{_AUTH}/services/tests/test_tasks.py", f"{_AUTH}/eveonline/tests/test_tasks.py",
                f"{_AUTH}/analytics/tests/test_tasks.py", f"{_AUTH}/admin_status/tests/test_tasks.py",
                f"{_AUTH}/services/modules/discord/tests/test_tasks.py",
                f"{_AUTH}/services/modules/mumble/tests/test_tasks.py",
            ),
            also=(*_PYTEST, "fakeredis", "requests-mock", "django-webtest"),
            overrides=(_without("mysqlclient"),),
            environ={"DJANGO_SETTINGS_MODULE": "settings_allianceauth"},
        ),
        Project(
            "bodhi_server", "26.4.0", "Pyramid application",
            "`autoretry_for` with `retry_backoff`, a periodic schedule, `ignore_result`",
            "app_bodhi",
            (_default_class("bodhi/server/tasks/__init__.py", "app = celery.Celery()"),),
            tuple(
                f"tests/tasks/test_{name}.py"
                for name in (
                    "approve_testing", "check_policies", "check_signed_builds", "clean_old_composes",
                    "expire_overrides", "fetch_test_cases", "handle_side_and_related_tags",
                    "tag_update_builds", "work_on_bugs",
                )
            ),
            also=(
                "redis", "pytest", "psycopg2-binary", "webtest", "createrepo-c", "responses", "setuptools<81",
            ),
            overrides=(_without("psycopg2"), _without("requests-gssapi")),
            environ={"BODHI_CONFIG": "tests/testing.ini"},
        ),
        Project(
            "edx_celeryutils", "2.0.0", "Django library, with a small app",
            "two base classes, one with `apply_async()`, one that stores failed tasks; `throws`",
            "app_edx",
            tuple(
                Edit(
                    f"{_EDX}/{name}.py", "\nfrom celery import Task\n",
                    "\nfrom celery_dlq import DLQTask as Task\n",
                )
                for name in ("logged_task", "persist_on_failure")
            ),
            ("tests", f"{_EDX}/management/commands/tests"),
            also=_PYTEST,
            lines_in_app=1,
            environ={"DJANGO_SETTINGS_MODULE": "settings_edx"},
        ),
        Project(
            "girder_worker", "5.0.21", "job runner on RabbitMQ, prefork",
            "a class with `apply_async()` and `__call__()`, a serializer, signals that report jobs",
            "app_girder",
            (
                Edit("girder_worker/task.py", "import celery\n", f"import celery\n{_IMPORT}"),
                Edit("girder_worker/task.py", "class Task(celery", "class GirderTask(celery"),
                Edit(
                    "girder_worker/task.py", "        self.request.girder_client_instance = value\n",
                    "        self.request.girder_client_instance = value\n\n\n"
                    "class Task(DLQTask, GirderTask): ...\n",
                ),
            ),
            (),
        ),
        Project(
            "django_eveuniverse", "2.2.0", "Django app",
            "celery-once, `autoretry_for` as a list, `retry_backoff`, time limits, chains",
            "app_eveuniverse",
            (
                Edit(
                    "eveuniverse/tasks.py", "from celery import chain, shared_task\n",
                    f"from celery import chain, shared_task\n{_IMPORT}",
                ),
                Edit("eveuniverse/tasks.py", "QueueOnce(BaseQueueOnce)", "QueueOnce(DLQTask, BaseQueueOnce)"),
            ),
            ("eveuniverse/tests/test_tasks.py",),
            also=(*_PYTEST, "factory-boy", "pookx"),
            lines_in_app=1,
            environ={"DJANGO_SETTINGS_MODULE": "settings_eveuniverse"},
        ),
        Project(
            "invenio_files_rest", "6.1.0", "Flask application",
            "Flask-CeleryExt's class with a `__call__()` that does not call `super()`, groups, progress",
            "app_invenio",
            (),
            (),
            also=("redis", "setuptools<81", "sqlalchemy<2.1"),
            overrides=("celery>=5.5",),
            lines_in_app=4,
        ),
    )
}  # fmt: skip
