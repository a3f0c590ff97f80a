"""Calls that send no message, and a task that cannot be one: ``python -m matrix.calls NAME=ID ...``."""

import sys

import proj
from matrix.app import app, count

from celery_dlq import DLQTask
from celery_dlq.errors import AsyncTaskError


def apply(task_id):
    return proj.terminal.apply(task_id=task_id).failed()


def always_eager(task_id):
    app.conf.task_always_eager = True
    return proj.terminal.apply_async(task_id=task_id).failed()


def direct(task_id):
    try:
        proj.terminal()
    except ValueError:
        return True
    return False


def coroutine(task_id):
    async def runs_never():
        raise AssertionError

    try:
        app.task(base=DLQTask)(runs_never).name  # noqa: B018 - registers it
    except AsyncTaskError:
        return True
    return False


for argument in sys.argv[1:]:
    name, _, its_id = argument.partition("=")
    if globals()[name](its_id):
        count(f"raised-{its_id}")
