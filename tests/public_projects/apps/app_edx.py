"""Open edX' base classes for tasks, with a table of failed tasks, in a small Django project."""

import os

import django
from cases import SECRET, Case, set_up
from celery import Celery
from django.conf import settings

settings.configure(
    INSTALLED_APPS=["celery_utils"],
    DATABASES={
        "default": {"ENGINE": "django.db.backends.sqlite3", "NAME": os.path.abspath("edx.sqlite3")}
    },
    DEFAULT_AUTO_FIELD="django.db.models.AutoField",
    USE_TZ=True,
)
django.setup()

from celery_utils.logged_task import LoggedTask  # noqa: E402
from celery_utils.persist_on_failure import (  # noqa: E402
    LoggedPersistOnFailureTask,
    PersistOnFailureTask,
)

app = Celery("edx", task_cls="celery_dlq:DLQTask")
set_up(app)


@app.task(base=LoggedPersistOnFailureTask)
def grade(course, token):
    """Needs a course, as a grade does."""
    with open(course) as file:
        return file.read()


@app.task(base=LoggedTask, bind=True, max_retries=1, default_retry_delay=0)
def publish(self, course):
    try:
        return os.listdir(course)
    except OSError as error:
        raise self.retry(exc=error) from error


@app.task(base=PersistOnFailureTask, autoretry_for=(LookupError,), max_retries=1, retry_backoff=0.1)
def enroll(name):
    return os.environ[name] if not os.path.exists(name) else name


@app.task(base=LoggedPersistOnFailureTask, throws=(ValueError,))
def score(path):
    return int(open(path).read() if os.path.exists(path) else "none")


CASES = [
    Case(
        "app_edx.grade", "FileNotFoundError", "terminal", "terminal", ("course",), {"token": SECRET}
    ),
    Case("app_edx.publish", "FileNotFoundError", "terminal", "exhausted", ("courses",)),
    Case("app_edx.enroll", "KeyError", "transient", "exhausted", ("learner",)),
    Case("app_edx.score", "ValueError", "terminal", "terminal", ("score",)),
    Case(
        "celery_utils.tasks.mark_resolved", "OperationalError", "terminal", "terminal", ("an id",)
    ),
]


def prepare():
    from django.core.management import call_command

    call_command("migrate", verbosity=0)
    with django.db.connection.cursor() as cursor:
        cursor.execute("ALTER TABLE celery_utils_failedtask RENAME TO away")


def mend(service):
    with django.db.connection.cursor() as cursor:
        cursor.execute("ALTER TABLE away RENAME TO celery_utils_failedtask")
    os.mkdir("courses")
    for name, content in {"course": "", "learner": "", "score": "3"}.items():
        with open(name, "w") as file:
            file.write(content)
