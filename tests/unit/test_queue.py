import sys

import pytest
from celery import Celery
from factories import letter

from celery_dlq import DeadLetterQueue, DLQTask, Filter
from celery_dlq.errors import SettingsError, StoreError


@pytest.fixture
def app(tmp_path):
    app = Celery("unit", broker="memory://", set_as_current=False)
    app.conf.update(
        dlq_store_url=f"sqlite:///{tmp_path}/store.sqlite3", dlq_spool_dir=str(tmp_path / "spool")
    )
    return app


def test_binding_a_task_is_the_whole_installation(app):
    @app.task(base=DLQTask, shared=False)
    def charge(): ...

    app.finalize()
    assert isinstance(app.dead_letter_queue, DeadLetterQueue)
    assert app.tasks[charge.name].dlq is app.dead_letter_queue
    assert "celery_dlq.worker.step:CaptureStep" in app.steps["consumer"]


def test_an_app_has_one_queue(app):
    assert DeadLetterQueue.of(app) is DeadLetterQueue.of(app) is app.dead_letter_queue


def test_apps_do_not_share(app):
    other = Celery("other", broker="memory://", set_as_current=False)
    other.conf.dlq_max_attempts = 9
    assert DeadLetterQueue.of(other).settings.max_attempts == 9
    assert DeadLetterQueue.of(app).settings.max_attempts == 5


def test_the_store_is_opened_once_and_checked(app):
    queue = DeadLetterQueue.of(app)
    assert queue.store is queue.store
    assert queue.store.count(Filter()) == 0
    queue.store.close()


def test_a_wrong_store_is_a_store_error_each_time(app):
    app.conf.dlq_store_url = "sqlite:////no/such/directory/store.sqlite3"
    queue = DeadLetterQueue.of(app)
    for _ in range(2):
        with pytest.raises(StoreError):
            queue.store  # noqa: B018


def test_a_finalised_app_is_validated_at_once(app):
    app.conf.dlq_retry_base = -1
    app.finalize()
    with pytest.raises(SettingsError, match="dlq_retry_base"):
        DeadLetterQueue.of(app)


def test_what_is_recorded_is_in_the_store_when_it_returns(app):
    queue, done = DeadLetterQueue.of(app), []
    queue.record(letter("a"), lambda: done.append(queue.store.get("a").task_id))
    assert done == ["a"]
    queue.writer.stop()
    queue.store.close()


def test_the_python_api_plans_and_redrives(app):
    def charge(): ...

    app.task(charge, name="shop.charge", shared=False)
    queue = DeadLetterQueue.of(app)
    queue.store.save([letter("a")])
    assert queue.plan(Filter(task="charge")).sendable == 1
    assert queue.redrive(Filter(task="charge"), who="tester").sent == 1
    queue.store.close()


def test_a_worker_that_shuts_down_stops_the_writer(app):
    from celery import signals

    class Worker:
        def __init__(self, app):
            self.app = app

    queue = DeadLetterQueue.of(app)
    queue.writer.start()
    thread = queue.writer._thread
    signals.worker_shutdown.send(sender=Worker(Celery("other", set_as_current=False)))
    assert thread.is_alive(), "another app's worker"
    signals.worker_shutdown.send(sender=Worker(app))
    assert not thread.is_alive()


def test_producers_do_not_pay_for_the_store():
    import subprocess

    code = (
        "import sys\nfrom celery import Celery\nfrom celery_dlq import DLQTask\n"
        "app = Celery('x')\n@app.task(base=DLQTask)\ndef t(): ...\napp.finalize()\n"
        "print([m for m in ('sqlalchemy', 'alembic', 'rich', 'psycopg') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
