"""The doctor about automatic redrives and handlers: what never matches, is stopped, or has no worker."""

from types import SimpleNamespace

import pytest
from celery.app.control import Inspect
from kombu import Queue
from kombu.common import Broadcast
from support.auto_world import CHARGES, LEASE_S
from support.factories import letter

from celery_dlq import AutoRedrive, Filter, Leave, Requirements
from celery_dlq.cli.doctor.app import sent_to
from celery_dlq.model.automation import AutoState
from celery_dlq.upkeep.automation.engine import lease_of
from celery_dlq.worker.broker_limits import upkeep_lease


@pytest.fixture
def found(run):
    """Gives the lines of one check, each a level and a text."""

    def found(check):
        lines = [line.split(maxsplit=2) for line in run("doctor").stdout.splitlines()[1:]]
        return [(level, text) for name, level, text in lines if name == check]

    return found


@pytest.fixture
def answers(monkeypatch):
    """The answers of workers, by node: the queues that each consumes, and its handlers."""
    given = {}

    def queues(_inspect):
        return {node: [{"name": name} for name in names] for node, (names, _) in given.items()}

    def stats(_inspect):
        return {node: {"dlq": {"handlers": known}} for node, (_, known) in given.items()}

    monkeypatch.setattr(Inspect, "active_queues", lambda one: queues(one) or None)
    monkeypatch.setattr(Inspect, "stats", lambda one: stats(one) or None)
    return given


@pytest.fixture
def shop(app, request):
    """Gives the app these automatic redrives, its store this many letters, and by default a worker that runs
    them."""

    def shop(*autos, letters=1, is_running=True):
        app.conf.dlq_auto_redrive = autos
        store = request.getfixturevalue("store")
        store.letters.save([letter(f"letter-{number}") for number in range(letters)])
        if is_running:
            store.leases.take(lease_of(app), holder="a worker", seconds=LEASE_S)
        return store

    return shop


def test_a_worker_that_does_the_upkeep_is_noticed(found, queue, store):
    store.leases.take(upkeep_lease(queue.hold.place), holder="a worker", seconds=LEASE_S)
    assert found("workers") == [
        ("ok", "a worker on this broker does what is left to workers, in this store")
    ]


def test_without_a_worker_there_is_a_warning_with_what_it_needs(found, app):
    [(level, text)] = found("workers")
    assert (level, text.partition(";")[0]) == (
        "warning", "no worker answers, so operations, parked retries and outcomes wait",
    )  # fmt: skip
    assert text.endswith(
        f"with a task that has base=DLQTask, and the store {app.conf.dlq_store_url}"
    )


def test_an_app_without_them_gets_no_line(found):
    assert found("auto") == []


def test_one_that_runs_is_well(shop, found):
    shop(AutoRedrive("charges", where=CHARGES))
    assert found("auto") == [("ok", "charges: active, 0 held letters")]


def test_one_that_has_suspended_itself_is_a_warning_and_a_paused_one_is_not(shop, found):
    store = shop(AutoRedrive("charges", where=CHARGES))
    for state, level in ((AutoState.SUSPENDED, "warning"), (AutoState.PAUSED, "ok")):
        store.automations.set_state("charges", state, who="ann", why="too many", now=store.now())
        [(said, text)] = found("auto")
        assert said == level
        assert text.startswith(f"charges: it is {state.value}")
        assert text.endswith("after a fix, run: celery dlq auto resume charges")


def test_one_that_matches_no_letter_is_a_warning(shop, found):
    shop(AutoRedrive("charges", where=CHARGES), letters=0)
    [(level, text)] = found("auto")
    assert level == "warning"
    assert text.startswith("charges: its where matches no letter of the store")


def test_one_of_a_task_that_is_unknown_is_a_warning_with_the_task_that_is_meant(shop, found):
    shop(AutoRedrive("charges", where=Filter(task="chrage")))
    [(level, text), _matches_none] = found("auto")
    assert level == "warning"
    assert "'chrage' is not a task of this app; did you mean 'shop.charge'?" in text


def test_a_requirement_that_can_never_hold_is_an_error(shop, found):
    shop(AutoRedrive("charges", where=CHARGES, require=Requirements(new_release=True)))
    [(level, text)] = found("auto")
    assert level == "error"
    assert "new_release needs dlq_release, which is not set" in text


def test_without_a_worker_that_runs_them_there_is_a_warning(shop, found):
    shop(AutoRedrive("charges", where=CHARGES), is_running=False)
    [_, (level, text)] = found("auto")
    assert level == "warning"
    assert text.startswith("no worker runs the automatic redrives; start a worker")


@pytest.fixture
def handler(queue):
    queue.handler(where=Filter(task="charge"), name="leave")(lambda _letter: Leave())
    return SimpleNamespace(queue=queue.settings.handler_queue)


def test_a_handler_with_a_worker_is_well(found, handler, answers):
    answers["w@one"] = ([handler.queue], {"leave": "1"})
    assert found("auto") == [("ok", "1 handler, all known to a worker on its queue")]


def test_a_handler_without_a_worker_is_a_warning(found, handler, answers):
    answers["w@one"] = (["celery"], {"leave": "1"})
    [(level, text)] = found("auto")
    assert level == "warning"
    assert (
        text
        == f"leave: no worker consumes its queue {handler.queue}; start one with -Q {handler.queue}"
    )
    answers.clear()
    assert found("auto") == [(level, text)]


def test_a_worker_that_has_not_imported_the_handler_is_a_warning(found, handler, answers):
    answers["w@one"] = ([handler.queue], {"leave": "1"})
    answers["w@two"] = ([handler.queue], {})
    [(level, text)] = found("auto")
    assert level == "warning"
    assert text.startswith(
        "leave: w@two consumes its queue, but has not imported it; import its module"
    )


def test_a_handler_of_an_unknown_task_is_a_warning(found, queue, answers):
    queue.handler(where=Filter(task="chrage"), name="leave")(lambda _letter: Leave())
    answers["w@one"] = ([queue.settings.handler_queue], {"leave": "1"})
    [(level, text), _known] = found("auto")
    assert level == "warning"
    assert text.startswith(
        "leave: where: 'chrage' is not a task of this app; did you mean 'shop.charge'?"
    )


#: Celery still sends to the queue of a task.
PLANS_TO_REMOVE = pytest.mark.filterwarnings(r"ignore:\s*The 'queue' task attribute is deprecated")


@pytest.fixture
def sending(app):
    """Gives the app a queue for each way in which it can send a message; returns their names."""
    app.conf.task_queues = [Queue("mail"), Broadcast("all")]
    app.conf.task_routes = (
        {"shop.charge": "money", "other.*": {"queue": "others"}},
        lambda name, args, kwargs, options, task: {"queue": args[0]},
    )
    app.conf.beat_schedule = {"a": {"task": "x", "schedule": 60, "options": {"queue": "nightly"}}}

    @app.task(name="shop.video", queue="video", shared=False)
    def video(): ...

    return {"celery", "mail", "money", "others", "nightly", "video"}


@PLANS_TO_REMOVE
def test_the_queues_that_an_app_sends_to(app, sending):
    app.conf.task_routes = app.conf.task_routes[:1]
    assert sent_to(app) == sending


@PLANS_TO_REMOVE
def test_a_router_that_needs_arguments_hides_no_other_queue(app, sending):
    assert sent_to(app) == sending - {"video"}


@PLANS_TO_REMOVE
def test_a_queue_that_no_worker_reads_is_a_warning(found, answers, app, sending):
    app.conf.task_routes = app.conf.task_routes[:1]
    answers["w@one"] = (["mail", "celery", "money"], {})
    [_default, (level, text)] = found("queues")
    assert level == "warning"
    assert text == (
        "no worker that answers reads nightly, others, video, so messages that this app sends there wait; "
        "start one with -Q nightly,others,video, or correct the route"
    )
    answers["w@two"] = (["nightly", "others", "video"], {})
    assert found("queues")[1:] == []


def test_without_a_worker_queues_get_no_line_of_their_own(found, answers):
    assert found("queues") == []
