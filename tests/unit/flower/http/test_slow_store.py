"""A store that is slow, unreachable or wrong: pages report it, and Flower itself does not wait."""

import asyncio
import shutil
import threading

import pytest

from celery_dlq.api.queue import DeadLetterQueue
from celery_dlq.errors import RecordRefused, SchemaError, StoreUnavailable
from celery_dlq.flower.http.calls import THREADS, Calls, NotYet, Snapshots

LETTERS = "/dead-letters/letters"


@pytest.fixture
def never():
    """Work that ends with the test."""
    ended = threading.Event()
    yield ended.wait
    ended.set()


def threads_of_flower():
    """The threads of calls that run. Threads of other tests may be among them, and end at any time."""
    return {thread for thread in threading.enumerate() if thread.name == "dlq-flower"}


@pytest.mark.parametrize("error", [StoreUnavailable, SchemaError, RecordRefused])
def test_a_store_error_is_a_page_with_the_next_step(ann, store, monkeypatch, error):
    def find(*_args, **_kwargs):
        raise error

    monkeypatch.setattr(store.letters, "find", find)
    page = ann.get(LETTERS)
    assert page.status == 503
    assert page.headers["Retry-After"]
    assert " ".join(str(error()).split()) in page.text
    [(_, text)] = page.find("section", role="alert")
    assert "does not answer" in text
    assert ann.get("/healthcheck").status == 200
    assert ann.get("/tasks").status == 200


def test_an_unreachable_store_is_tried_again(visit, app, tmp_path, empty_store, monkeypatch):
    app.conf.dlq_store_url = f"sqlite:///{tmp_path}/missing/letters.sqlite3"
    monkeypatch.setenv("FLOWER_UNAUTHENTICATED_API", "true")
    visitor = visit()
    page = visitor.get(LETTERS)
    assert (page.status, "does not exist" in page.text) == (503, True)
    directory, file = tmp_path / "missing", tmp_path / "missing" / "letters.sqlite3"
    directory.mkdir()
    for path in (LETTERS, "/api/dead-letters"):
        page = visitor.get(path)
        assert (page.status, f"{file} does not exist" in page.body) == (503, True)
    # Flower makes no store: it would show an empty one.
    assert not [*directory.iterdir()]
    shutil.copy(empty_store, file)
    assert visitor.get(LETTERS).status == 200


def test_a_wrong_setting_is_shown_on_the_page(visit, app, monkeypatch):
    monkeypatch.delitem(vars(app), "dead_letter_queue", raising=False)
    app.conf.dlq_store_timeout = "soon"
    page = visit().get(LETTERS)
    assert (page.status, "dlq_store_timeout" in page.text) == (503, True)


def test_a_store_that_never_answers_blocks_nothing_else(
    ann, store, monkeypatch, never, site_of, loop
):
    monkeypatch.setattr(store.letters, "find", lambda *_args, **_kwargs: never())
    site_of(ann).calls.patience_s = 0.05
    before = threads_of_flower()

    async def ask_many():
        pages = [ann.answer("GET", LETTERS) for _ in range(3 * THREADS)]
        health = [ann.answer("GET", "/healthcheck") for _ in range(3)]
        return await asyncio.gather(*pages, *health)

    answers = loop.run_until_complete(ask_many())
    assert {answer.status for answer in answers[: 3 * THREADS]} == {503}
    assert "has not answered" in answers[0].text
    assert {answer.status for answer in answers[3 * THREADS :]} == {200}
    assert len(threads_of_flower() - before) <= THREADS


def test_after_an_unanswered_act_the_form_is_not_accepted_again(
    ann, store, monkeypatch, never, site_of
):
    action = "/dead-letters/letters/77e1/discard"
    form = {**dict(ann.get("/dead-letters/letters/77e1").form(action)), "why": "x"}
    monkeypatch.setattr(store.closing, "discard", lambda *_args, **_kwargs: never())
    site_of(ann).calls.patience_s = 0.05
    assert ann.post(action, form).status == 503
    assert ann.post(action, form).status == 409


class TestCalls:
    def test_results_and_errors_are_those_of_the_work(self, loop):
        calls = Calls(60)
        assert loop.run_until_complete(calls.run(lambda: 7)) == 7
        with pytest.raises(KeyError):
            loop.run_until_complete(calls.run(lambda: {}["x"]))

    def test_the_number_of_threads_is_limited(self, loop, never):
        calls, before = Calls(0.05, threads=2), threads_of_flower()

        async def ask():
            return await asyncio.gather(
                *(calls.run(never) for _ in range(5)), return_exceptions=True
            )

        assert [type(error) for error in loop.run_until_complete(ask())] == [NotYet] * 5
        assert len(threads_of_flower() - before) == 2

    def test_a_late_thread_becomes_free(self, loop):
        calls, ended = Calls(0.05, threads=1), threading.Event()
        with pytest.raises(NotYet):
            loop.run_until_complete(calls.run(ended.wait))
        calls.patience_s = 60
        ended.set()
        assert loop.run_until_complete(calls.run(lambda: 7)) == 7

    def test_threads_do_not_keep_flower_from_exiting(self, loop, never):
        with pytest.raises(NotYet):
            loop.run_until_complete(Calls(0.05).run(never))
        assert all(thread.daemon for thread in threads_of_flower())


class TestSnapshots:
    def test_concurrent_requests_share_one_answer(self, loop):
        asked = []
        snapshots = Snapshots(Calls(60))

        async def ask():
            return await asyncio.gather(
                *(snapshots.get("key", 10, lambda: asked.append(1) or 7) for _ in range(5))
            )

        assert loop.run_until_complete(ask()) == [7] * 5
        assert len(asked) == 1

    def test_an_answer_is_cached_for_its_lifetime(self, loop):
        now, asked = [100.0], []
        snapshots = Snapshots(Calls(60), lambda: now[0])

        def get(key="key"):
            return loop.run_until_complete(
                snapshots.get(key, 10, lambda: asked.append(key) or len(asked))
            )

        assert [get(), get(), get("other")] == [1, 1, 2]
        now[0] += 10
        assert get() == 3
        snapshots.forget()
        assert get() == 4

    def test_an_answer_from_before_a_change_is_not_cached(self, loop):
        snapshots, began, changed = Snapshots(Calls(60)), threading.Event(), threading.Event()

        def before():
            began.set()
            assert changed.wait(60)
            return "open"

        async def change_meanwhile():
            early = asyncio.ensure_future(snapshots.get("key", 1_000, before))
            await asyncio.to_thread(began.wait, 60)
            snapshots.forget()
            late = await snapshots.get("key", 1_000, lambda: "resolved")
            changed.set()
            return await early, late, await snapshots.get("key", 1_000, lambda: "asked again")

        assert loop.run_until_complete(change_meanwhile()) == ("open", "resolved", "resolved")

    def test_an_error_is_not_cached(self, loop):
        snapshots, answers = Snapshots(Calls(60)), [7]
        with pytest.raises(KeyError):
            loop.run_until_complete(snapshots.get("key", 10, lambda: {}["x"]))
        assert loop.run_until_complete(snapshots.get("key", 10, answers.pop)) == 7

    def test_a_late_answer_is_cached_for_the_next_request(self, loop):
        calls, ended = Calls(0.05), threading.Event()
        snapshots = Snapshots(calls)
        with pytest.raises(NotYet):
            loop.run_until_complete(snapshots.get("key", 1_000, lambda: ended.wait() and 7))
        calls.patience_s = 60
        ended.set()
        assert loop.run_until_complete(snapshots.get("key", 1_000, lambda: 8)) == 7

    def test_the_cache_is_limited(self, loop):
        snapshots = Snapshots(Calls(60))
        for number in range(200):
            loop.run_until_complete(snapshots.get(number, 10, lambda: 1))
        assert len(snapshots._kept) <= 64


def test_the_store_is_made_once(app, visit, three, monkeypatch):
    made = []
    visitor = visit()
    monkeypatch.delitem(vars(DeadLetterQueue.of(app)), "store")
    real = DeadLetterQueue.store.func
    monkeypatch.setattr(DeadLetterQueue.store, "func", lambda self: made.append(1) or real(self))
    for _ in range(3):
        assert visitor.get(LETTERS).status == 200
    assert made == [1]
