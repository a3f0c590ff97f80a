import pickle
import subprocess
import sys
import types
from functools import partial
from urllib.parse import unquote

import pytest
from celery import Celery
from prometheus_client import CollectorRegistry
from support.factories import letter

from celery_dlq import AutoRedrive, DeadLetterQueue, DLQTask, Filter, Requirements, Rule
from celery_dlq.api import parts
from celery_dlq.api.queue import _open_saver
from celery_dlq.errors import MissingExtra, SettingsError, StoreError
from celery_dlq.metrics import families
from celery_dlq.model.operation import OperationState
from celery_dlq.settings import Settings
from celery_dlq.store.database.client import Client, Role
from celery_dlq.store.listener import StoreListener
from celery_dlq.upkeep.step import UpkeepStep
from celery_dlq.worker import consumer
from celery_dlq.worker.consumer import CaptureStep, LastStep


class Unsaid:
    def __str__(self):
        raise LookupError("no name")


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
    assert app.tasks[charge.name]._dlq_wiring is app.dead_letter_queue
    assert "celery_dlq.worker.consumer:CaptureStep" in app.steps["consumer"]


def test_an_app_has_one_queue(app):
    assert DeadLetterQueue.of(app) is DeadLetterQueue.of(app) is app.dead_letter_queue


def test_apps_do_not_share(app):
    other = Celery("other", broker="memory://", set_as_current=False)
    other.conf.dlq_max_attempts = 7
    assert DeadLetterQueue.of(other).settings.max_attempts == 7
    assert DeadLetterQueue.of(app).settings.max_attempts == 9


def test_the_store_is_opened_once_and_checked(app):
    queue = DeadLetterQueue.of(app)
    assert queue.store is queue.store
    assert queue.store.counts.letters(Filter()) == 0
    queue.store.close()


def test_a_wrong_store_is_a_store_error_each_time(app):
    app.conf.dlq_store_url = "sqlite:////no/such/directory/store.sqlite3"
    queue = DeadLetterQueue.of(app)
    for _ in range(2):
        with pytest.raises(StoreError):
            queue.store  # noqa: B018


@pytest.mark.parametrize("step", [LastStep, CaptureStep])
def test_no_worker_starts_with_a_wrong_setting(app, step):
    app.conf.dlq_retry_base = -1
    app.finalize()
    DeadLetterQueue.of(app)
    with pytest.raises(SettingsError, match="dlq_retry_base"):
        step(types.SimpleNamespace(app=app, steps=[]))


@pytest.mark.parametrize("setting", ["dlq_subject", "dlq_fingerprint"])
def test_no_worker_starts_with_a_function_that_does_not_exist(app, setting):
    app.conf.update({"dlq_encryption_keys": {"k": b"k" * 32}, setting: "no.such.function"})
    app.finalize()
    DeadLetterQueue.of(app)
    with pytest.raises(SettingsError, match=f"{setting}: 'no.such.function' cannot be imported"):
        consumer._check(app)


def test_a_recorded_letter_is_in_the_store_when_it_returns(app):
    queue, done = DeadLetterQueue.of(app), []
    capture = queue.new_capture()
    capture.write(letter("a"), lambda: done.append(queue.store.letters.get("a").task_id))
    assert done == ["a"]
    capture.close()
    queue.store.close()


def test_the_python_api_plans_and_redrives(app):
    def charge(*args, **kwargs): ...

    app.task(charge, name="shop.charge", shared=False)
    queue = DeadLetterQueue.of(app)
    queue.store.letters.save([letter("a")])
    assert queue.redrives.plan(Filter(task="charge")).sendable == 1
    done = queue.redrives.start(Filter(task="charge"), who="tester")
    assert (done.state, done.counts.out) == (OperationState.DONE, 1)
    assert queue.redrives.get(done.id) == done == queue.redrives.find()[0]
    queue.store.close()


def test_the_python_api_leaves_an_operation_to_a_worker_and_takes_it_back(app):
    queue = DeadLetterQueue.of(app)
    queue.store.letters.save([letter("a")])
    made = queue.redrives.start(Filter(), who="tester", detach=True)
    assert (made.state, made.detached) == (OperationState.PLANNED, True)
    assert queue.redrives.pause(made.id, who="boss").cause == "paused by boss"
    assert queue.redrives.find(states={OperationState.PAUSED}) == [queue.redrives.get(made.id)]
    assert queue.redrives.resume(made.id, who="boss", detach=True).state is OperationState.RUNNING
    assert queue.redrives.cancel(made.id, who="boss").state is OperationState.CANCELLED
    queue.store.close()


def test_the_store_and_hooks_are_the_apps_until_its_last_worker_ends(app):
    queue, told = DeadLetterQueue.of(app), []
    queue.on_dead_letter(told.append)
    first, second = Worker(queue), Worker(queue)
    for worker in (first, second):
        LastStep(worker).start(worker)
    queue.store.letters.save([letter("a")])
    LastStep(first).stop(first)
    assert queue.store.database._connections, "the second one uses it"
    LastStep(second).stop(second)
    assert not queue.store.database._connections
    assert [made.task_id for made in told] == ["a"], "told, though its thread has ended"


class Worker:
    """The part of a worker that its steps use."""

    pool_cls = None

    def __init__(self, queue):
        self.app, self.consumer = queue.app, types.SimpleNamespace(dlq=queue.new_capture())


def test_producers_do_not_pay_for_the_store():
    code = (
        "import sys\nfrom celery import Celery\nfrom celery_dlq import DLQTask\n"
        "app = Celery('x')\n@app.task(base=DLQTask)\ndef t(): ...\napp.finalize()\n"
        "print([m for m in ('sqlalchemy', 'alembic', 'rich', 'psycopg') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_worker_can_import_the_store_and_its_driver_without_connecting():
    code = (
        "import sys\nfrom celery import Celery\nfrom celery_dlq import DeadLetterQueue\n"
        "app = Celery('x')\napp.conf.dlq_store_url = 'postgresql://nowhere.invalid/letters'\n"
        "queue = DeadLetterQueue.of(app)\nqueue.prepare_store()\n"
        "print('celery_dlq.store.sql' in sys.modules, 'psycopg' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "True True"


@pytest.mark.parametrize(
    "url",
    ["oracle://db/shop", "sqlite:////no/such/directory/x.db", "sqlite:///x.db?timeout=abc"],
)
def test_a_store_that_cannot_be_prepared_is_an_error_for_those_who_use_it(app, url):
    app.conf.dlq_store_url = url
    queue = DeadLetterQueue.of(app)
    queue.prepare_store()
    with pytest.raises((SettingsError, StoreError, ValueError)):
        queue.store  # noqa: B018


def test_rules_whose_names_lead_nowhere_are_refused_all_at_once(app):
    app.conf.dlq_transient = ["KeyError", "celery_dlq.errors.Bussy"]
    app.conf.dlq_rules = [Rule("no_such_shop.Busy", "transient", name="mine")]

    @app.task(name="shop.charge", base=DLQTask, shared=False, dlq_terminal=["celery_dlq.eror.X"])
    def charge():
        return None

    with pytest.raises(SettingsError) as caught:
        DeadLetterQueue.of(app).check_rules()
    said = str(caught.value)
    for part in (
        "dlq_transient: 'celery_dlq.errors.Bussy'",
        "dlq_rules, mine: 'no_such_shop.Busy'",
        "task shop.charge: task.dlq_terminal: 'celery_dlq.eror.X'",
    ):
        assert part in said


def test_rules_whose_names_lead_somewhere_are_taken(app):
    app.conf.dlq_transient = ["KeyError", "celery_dlq.errors.StoreError", "celery_dlq.*"]
    DeadLetterQueue.of(app).check_rules()


def test_the_stores_numbers_go_on_a_registry(app):
    registry = CollectorRegistry()
    queue = DeadLetterQueue.of(app)
    queue.store.letters.save([letter()])
    queue.register_metrics(registry)
    assert queue.snapshots.look(60).up is True
    labels = {"task": "shop.charge", "queue": "celery", "reason": "terminal"}
    assert registry.get_sample_value("celery_dlq_depth", labels) == 1
    assert registry.get_sample_value("celery_dlq_spool_bytes") == 0
    queue.store.close()


def test_without_the_extra_metrics_say_what_to_install(app, monkeypatch):
    monkeypatch.setattr(families, "find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match=r"pip install 'celery-dlq\[prometheus\]'"):
        DeadLetterQueue.of(app).register_metrics()


@pytest.mark.parametrize("wanted", [True, False])
def test_the_saver_process_sends_letters_back_only_for_a_hook_that_wants_them(app, wanted):
    queue = DeadLetterQueue.of(app)
    queue.store.close()  # the schema is there
    opener = partial(_open_saver, queue.settings.store_url, 5.0, 24, Client(Role.SCRIBE))
    save = pickle.loads(pickle.dumps(opener))()
    told = []
    save([letter("a")], wanted).notify(Told(told))
    [saved] = told
    assert (saved.arrived, len(saved.letters), len(saved.new_groups)) == (1, int(wanted), 1)


@pytest.mark.parametrize(("limit", "found"), [(0, 0), (24, 1)])
def test_the_saver_process_keeps_as_many_values_as_the_settings_say(app, limit, found):
    app.conf.dlq_search_values = limit
    queue = DeadLetterQueue.of(app)
    save = queue._new_saver_process()._open_saver()
    save([letter("a", kwargs={"customer": "c-4711"})], False)
    assert queue.store.counts.letters(Filter(values=("c-4711",))) == found
    queue.store.close()


class Told(StoreListener):
    """Keeps what was saved."""

    def __init__(self, told):
        self.saved = told.append


@pytest.mark.parametrize("url", ["oracle://db/shop", "no url", "sqlite://"])
def test_an_unsupported_store_is_reported_when_a_worker_starts(app, url):
    app.conf.dlq_store_url = url
    DeadLetterQueue.of(app)
    with pytest.raises(SettingsError, match="dlq_store_url"):
        CaptureStep(types.SimpleNamespace(app=app, steps=[], pool=None))


def test_a_pool_that_forks_does_so_before_the_store_is_checked(app):
    """The check imports SQLAlchemy, which the pool's processes do not need."""
    app.conf.dlq_store_url = "oracle://db/shop"
    DeadLetterQueue.of(app)
    worker = types.SimpleNamespace(app=app, hostname="w@host", steps=[])
    upkeep = UpkeepStep(worker)
    with pytest.raises(SettingsError, match="dlq_store_url"):
        upkeep.start(worker)


def test_a_worker_does_not_start_with_an_automatic_redrive_that_can_never_run(app):
    app.conf.dlq_store_url = "postgresql://db.invalid/shop"
    require = Requirements(new_release=True)
    app.conf.dlq_auto_redrive = [AutoRedrive("later", where=Filter(task="t"), require=require)]
    DeadLetterQueue.of(app)
    worker = types.SimpleNamespace(app=app, hostname="w@host", steps=[])
    with pytest.raises(SettingsError, match="new_release needs dlq_release, which is not set"):
        UpkeepStep(worker)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://u:secret@db/shop", "postgresql+psycopg://u:***@db/shop"),
        ("sqlite:///own.sqlite3", "sqlite:///{here}/own.sqlite3"),
        ("sqlite:///file:own.sqlite3?uri=true", "sqlite:///file:own.sqlite3?uri=true"),
        (Settings.store_url, "sqlite:///{here}/celery_dlq.sqlite3 (the default)"),
    ],
)
def test_the_store_is_named_without_its_password(app, tmp_path, monkeypatch, url, shown):
    monkeypatch.chdir(tmp_path)
    app.conf.dlq_store_url = url
    # SQLAlchemy 2.1 writes the colon as %3A.
    assert unquote(DeadLetterQueue.of(app).check_store_url()) == shown.format(here=tmp_path)


def test_wrong_settings_are_read_once(app, monkeypatch):
    app.conf.dlq_max_attempts = "many"
    reads = []
    read = parts.read_settings
    monkeypatch.setattr(parts, "read_settings", lambda given: reads.append(1) or read(given))
    queue = DeadLetterQueue.of(app)
    assert [queue.task_settings.max_attempts for _ in range(3)] == [9, 9, 9]
    with pytest.raises(SettingsError, match="dlq_max_attempts"):
        queue.settings  # noqa: B018 - its error is the subject
    assert reads == [1]


def test_a_hook_gets_the_head_of_the_audit_after_each_act(app):
    queue, heads = DeadLetterQueue.of(app), []

    @queue.on_audit
    def fail(_head):
        raise RuntimeError("its disk is full")

    queue.on_audit(heads.append)
    queue.store.letters.save([letter("a")])
    queue.store.closing.discard(Filter(ids=("a",)), who="ann", why="old", now=queue.store.now())
    queue.hooks.finish()
    [head] = heads
    assert (head.n, head.act, head.who) == (1, "discard", "ann")
    assert queue.store.audit.verify(str(head)).breaks == []


@pytest.mark.parametrize(
    ("said", "subject"),
    [
        (7, "7"),
        (0, "0"),
        ("", ""),
        (None, ""),
        ("\udc80", "\udc80"),
        (10**5_000, ""),
        (Unsaid(), ""),
    ],
    ids=["int", "zero", "empty", "none", "surrogate", "huge", "unsaid"],
)
def test_whatever_dlq_subject_returns_no_error_reaches_the_capture(app, said, subject):
    app.conf.update(dlq_encryption_keys={"k": b"k" * 32}, dlq_subject=lambda args, kwargs: said)
    assert DeadLetterQueue(app).subject_of([], {}) == subject
