"""The tasks that Open edX' tests of their base classes call; their source distribution does not have them."""

from celery import Celery
from celery_utils.logged_task import LoggedTask
from celery_utils.persist_on_failure import PersistOnFailureTask

app = Celery("test_utils")
app.conf.update(
    task_always_eager=True, task_store_eager_result=True, result_backend="cache+memory://"
)


@app.task(base=LoggedTask)
def simple_logged_task(a, b, c):
    return a + b + c


@app.task(base=LoggedTask)
def failed_logged_task():
    raise ValueError


@app.task(base=PersistOnFailureTask)
def fallible_task(message=None):
    if message is not None:
        raise ValueError(message)


@app.task(base=PersistOnFailureTask)
def passing_task():
    return 5
