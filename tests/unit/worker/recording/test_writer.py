import threading
import time

import pytest
from factories import T0, envelope, letter

from celery_dlq.errors import RecordRefused, StoreUnavailable
from celery_dlq.letter import Outcome
from celery_dlq.spool import Spool, find_record
from celery_dlq.worker.recording import writer as module
from celery_dlq.worker.recording.scribe import ScribeGone
from celery_dlq.worker.recording.writer import Writer


class FakeStore:
    """Takes what it is told to take; counts its transactions."""

    def __init__(self):
        self.saved, self.outcomes, self.batches = [], [], []
        self.down = False
        self.poison = set()
        self.gate = None
        self.entered = threading.Event()
        self.calls = 0

    def save(self, letters):
        self.calls += 1
        self.entered.set()
        if self.gate:
            assert self.gate.wait(60)
        if self.down:
            raise StoreUnavailable
        if self.poison & {made.task_id for made in letters}:
            raise ValueError("the database chokes on this")
        self.batches.append(len(letters))
        self.saved += [made.task_id for made in letters]

    def record_outcomes(self, outcomes):
        self.outcomes += [outcome.task_id for outcome in outcomes]


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


@pytest.fixture
def store():
    return FakeStore()


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def writer(store, clock, tmp_path):
    writer = Writer(
        lambda: store, Spool(tmp_path / "spool"), size=1_000, batch_size=100, monotonic=clock
    )
    yield writer
    writer.stop()


def submit(writer, *records):
    safe = []
    for record in records:
        writer.submit(record, lambda record=record: safe.append(record.task_id))
    writer.flush()
    return safe


def spooled(writer):
    writer.stop()
    return [record.task_id for record in drained(writer._spool)]


def drained(spool):
    found = []
    for _step in spool.drain(found.extend):
        pass
    return found


def wait_until(ready):
    deadline = time.monotonic() + 60
    while not ready():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.005)


def spooled_by_an_earlier_worker(directory, count):
    spool = Spool(directory)
    spool.append([letter(f"old{n}") for n in range(count)])
    spool.close()


def test_a_record_is_safe_only_after_it_is_stored(writer, store):
    store.gate = threading.Event()
    safe = threading.Event()
    writer.submit(letter("a"), safe.set)
    assert store.entered.wait(60)
    assert not safe.is_set()
    store.gate.set()
    assert safe.wait(60)
    assert store.saved == ["a"]


def test_what_gathers_during_a_commit_is_written_in_one(writer, store):
    store.gate = threading.Event()
    writer.submit(letter("first"), lambda: None)
    assert store.entered.wait(60)
    for n in range(50):
        writer.submit(letter(f"l{n}"), lambda: None)
    store.gate.set()
    writer.flush()
    assert store.batches == [1, 50]


def test_letters_are_saved_before_outcomes(writer, store):
    outcome = Outcome(task_id="a", redrive=1, succeeded_at=T0, worker="w")
    assert submit(writer, outcome, letter("a")) == ["a", "a"]
    assert (store.saved, store.outcomes) == (["a"], ["a"])


def test_a_store_that_is_down_loses_nothing_and_holds_nobody_up(writer, store):
    store.down = True
    assert submit(writer, letter("a")) == ["a"]
    assert store.saved == []
    assert spooled(writer) == ["a"]


def test_a_store_that_is_down_is_left_in_peace_for_a_while(writer, store, clock):
    store.down = True
    submit(writer, letter("a"))
    store.down = False
    submit(writer, letter("b"))
    assert store.saved == [], "asked again before the pause was over"
    clock.now += module.STORE_PAUSE_S + 1
    submit(writer, letter("c"))
    submit(writer, letter("d"))
    assert sorted(store.saved) == ["a", "b", "c", "d"], "back, and the spool drained"
    assert spooled(writer) == []


def test_a_store_that_is_away_is_told_once_and_so_is_its_return(writer, store, clock, caplog):
    caplog.set_level("INFO")
    store.down = True
    for name in ("a", "b", "c"):
        submit(writer, letter(name))
        clock.now += module.STORE_PAUSE_S + 1
    store.down = False
    submit(writer, letter("d"))
    wait_until(lambda: len(store.saved) == 4)
    writer.stop()
    said = [record.getMessage() for record in caplog.records]
    assert [text for text in said if text.startswith("dead letters go")] == [
        f"dead letters go to the spool {writer._spool.directory}: {StoreUnavailable()}",
        "dead letters go to the store again",
    ]


def test_an_earlier_workers_spool_is_drained_at_the_start(writer, store, tmp_path):
    earlier = Spool(tmp_path / "spool")
    earlier.append([letter("theirs")])
    earlier.close()
    submit(writer, letter("ours"))
    assert sorted(store.saved) == ["ours", "theirs"]


def test_one_refused_letter_does_not_keep_the_others_out(writer, store):
    store.gate = threading.Event()
    store.poison = {"bad"}
    writer.submit(letter("first"), lambda: None)
    assert store.entered.wait(60)
    for name in ("good", "bad", "fine"):
        writer.submit(letter(name), lambda: None)
    store.gate.set()
    writer.flush()
    assert store.saved == ["first", "good", "fine"]
    store.poison = set()
    assert spooled(writer) == ["bad"]


def test_without_store_and_spool_the_whole_letter_is_in_the_log(writer, store, caplog, tmp_path):
    store.down = True
    (tmp_path / "spool").write_text("a file where the directory should be")
    assert submit(writer, letter("a")) == ["a"]
    [record] = [record for record in caplog.records if record.levelname == "CRITICAL"]
    assert '"task_id": "a"' in record.getMessage()
    assert '"body": ' in record.getMessage()


def test_a_letter_that_cannot_be_encoded_is_in_the_log_and_stops_nothing(writer, store, caplog):
    class Odd:
        def __str__(self):
            raise ValueError("no text")

        __repr__ = object.__repr__

    store.down = True
    odd = letter("a", envelope=envelope(headers={"odd": Odd()}, body=b"its body"))
    assert submit(writer, odd, letter("b")) == ["a", "b"]
    [record] = [record for record in caplog.records if record.levelname == "CRITICAL"]
    assert "its body" in record.getMessage()
    assert spooled(writer) == ["b"]


def test_a_caller_that_raises_does_not_stop_the_writer(writer, store):
    writer.submit(letter("a"), lambda: 1 / 0)
    assert submit(writer, letter("b")) == ["b"]


def test_a_full_writer_says_so_and_makes_nobody_wait(store, tmp_path):
    writer = Writer(lambda: store, Spool(tmp_path), size=2, batch_size=1)
    store.gate = threading.Event()
    writer.submit(letter("a"), lambda: None)
    assert store.entered.wait(60)
    writer.submit(letter("b"), lambda: None)
    assert not writer.is_full(), "one is being written, one waits"
    writer.submit(letter("c"), lambda: None)
    assert writer.is_full()
    writer.submit(letter("d"), lambda: None)
    assert writer.waiting == 3
    store.gate.set()
    writer.stop()
    assert not writer.is_full()
    assert store.saved == ["a", "b", "c", "d"]


def test_a_store_that_hangs_is_not_waited_for_for_ever(store, tmp_path):
    """Frozen beyond all timeouts of its own, as behind a proxy that passes nothing on."""
    writer = Writer(lambda: store, Spool(tmp_path), size=10, batch_size=10, patience=0.05)
    store.gate = threading.Event()
    assert submit(writer, letter("a")) == ["a"], "safe in the spool"
    assert store.saved == []
    assert spooled(writer) == ["a"]
    store.gate.set()


def test_a_store_that_hangs_is_asked_again_only_when_it_has_let_go(store, clock, tmp_path):
    writer = Writer(
        lambda: store, Spool(tmp_path), size=10, batch_size=10, patience=0.05, monotonic=clock
    )
    store.gate, let_go = threading.Event(), threading.Event()
    submit(writer, letter("a"))
    clock.now += module.STORE_PAUSE_S + 1
    submit(writer, letter("b"))
    assert store.calls == 1
    store.gate.set()
    writer._patience._latest.add_done_callback(lambda _: let_go.set())
    assert let_go.wait(60)
    store.gate = None
    clock.now += module.STORE_PAUSE_S + 1
    submit(writer, letter("c"))
    writer.stop()
    assert store.saved[:1] == ["a"], "the call that was left behind"
    assert "c" in store.saved


def test_new_letters_are_written_between_the_steps_of_a_long_drain(
    writer, store, tmp_path, monkeypatch
):
    monkeypatch.setattr("celery_dlq.spool.drain.STEP_RECORDS", 1)
    spooled_by_an_earlier_worker(tmp_path / "spool", 20)
    store.gate = threading.Event()
    writer.start()
    assert store.entered.wait(60)
    writer.submit(letter("new"), lambda: None)
    store.gate.set()
    writer.flush()
    assert store.saved.index("new") < 3
    wait_until(lambda: len(store.saved) == 21)


def test_a_drain_that_the_stop_interrupts_goes_on_with_the_next_worker(
    writer, store, tmp_path, monkeypatch
):
    monkeypatch.setattr("celery_dlq.spool.drain.STEP_RECORDS", 1)
    spooled_by_an_earlier_worker(tmp_path / "spool", 20)
    store.gate = threading.Event()
    writer.start()
    assert store.entered.wait(60)
    stopping = threading.Thread(target=writer.stop)
    stopping.start()
    wait_until(writer._entries.qsize)
    store.gate.set()
    stopping.join()
    assert 0 < len(store.saved) < 20
    assert spooled(writer) == [f"old{n}" for n in range(20)], "the file is free, and whole"


def test_large_bodies_fill_a_writer_sooner(store, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "QUEUE_BYTES", 200)
    writer = Writer(lambda: store, Spool(tmp_path), size=1_000, batch_size=1)
    store.gate, big = threading.Event(), envelope(body=b"x" * 100)
    writer.submit(letter("a", envelope=big), lambda: None)
    assert store.entered.wait(60)
    assert not writer.is_full()
    writer.submit(letter("b", envelope=big), lambda: None)
    assert writer.is_full()
    store.gate.set()
    writer.flush()
    assert not writer.is_full()
    writer.stop()


def test_a_batch_is_bounded_in_bytes(writer, store, monkeypatch):
    monkeypatch.setattr(module, "BATCH_BYTES", 150)
    store.gate, big = threading.Event(), envelope(body=b"x" * 100)
    writer.submit(letter("first"), lambda: None)
    assert store.entered.wait(60)
    for n in range(4):
        writer.submit(letter(f"l{n}", envelope=big), lambda: None)
    store.gate.set()
    writer.flush()
    assert store.batches == [1, 2, 2]


def test_what_still_fits_is_spooled_and_the_rest_is_in_the_log(store, clock, tmp_path, caplog):
    spool = Spool(tmp_path / "spool", max_size=3_200)
    writer = Writer(lambda: store, spool, size=10, batch_size=10, monotonic=clock)
    store.down, store.gate = True, threading.Event()
    writer.submit(letter("first"), lambda: None)
    assert store.entered.wait(60)
    records = [letter("big", envelope=envelope(body=b"x" * 5_000)), letter("small")]
    for record in records:
        writer.submit(record, lambda: None)
    store.gate.set()
    assert submit(writer) == []
    [told] = [record for record in caplog.records if record.levelname == "CRITICAL"]
    assert find_record(told.getMessage()) == records[0]
    assert "spool import" in told.getMessage()
    assert spooled(writer) == ["first", "small"]


def test_a_stopped_writer_can_be_used_again(writer, store):
    submit(writer, letter("a"))
    writer.stop()
    submit(writer, letter("b"))
    assert store.saved == ["a", "b"]


class TestQuestions:
    def ask(self, writer, question):
        answers = []
        writer.ask(question, answers.append)
        writer.flush()
        return answers

    def test_the_answer_knows_of_what_was_submitted_before(self, writer, store):
        writer.submit(letter("a"), lambda: None)
        assert self.ask(writer, lambda store: list(store.saved)) == [["a"]]

    def test_a_store_that_is_down_gives_no_answer_and_is_left_in_peace(self, writer, store, clock):
        def unavailable(store):
            raise StoreUnavailable

        assert self.ask(writer, unavailable) == [None]
        assert self.ask(writer, lambda store: "too early") == [None]
        clock.now += module.STORE_PAUSE_S + 1
        assert self.ask(writer, lambda store: "back") == ["back"]

    def test_a_store_that_hangs_gives_no_answer(self, store, tmp_path):
        gate = threading.Event()
        writer = Writer(lambda: store, Spool(tmp_path), size=9, batch_size=9, patience=0.05)
        assert self.ask(writer, lambda store: gate.wait(60)) == [None]
        gate.set()
        writer.stop()

    def test_a_question_that_fails_stops_nothing(self, writer, caplog):
        assert self.ask(writer, lambda store: 1 / 0) == [None]
        assert "ZeroDivisionError" in caplog.text
        assert self.ask(writer, lambda store: "next") == ["next"]

    def test_a_caller_that_cannot_take_its_answer_stops_nothing(self, writer):
        writer.ask(lambda store: "answer", lambda answer: 1 / 0)
        assert self.ask(writer, lambda store: "next") == ["next"]


class TestQuestionsOfOneKind:
    """Put while the store is busy, so that all of them wait."""

    @pytest.fixture
    def asked(self):
        return []

    @pytest.fixture
    def double(self, asked):
        def double(store, numbers):
            asked.append(list(numbers))
            if None in numbers:
                raise RecordRefused
            return [2 * number for number in numbers]

        return double

    @pytest.fixture
    def ask_all(self, writer, store):
        """Puts questions, each with what it is about; the answers in the order they came."""

        def ask_all(*questions):
            answers, store.gate = [], threading.Event()
            store.entered.clear()
            writer.submit(letter("first"), lambda: None)
            assert store.entered.wait(60)
            for question, about in questions:
                writer.ask_together(question, about, answers.append)
            store.gate.set()
            writer.flush()
            return answers

        return ask_all

    def test_they_are_put_in_one_call(self, ask_all, double, asked):
        assert ask_all(*((double, number) for number in range(5))) == [0, 2, 4, 6, 8]
        assert asked == [[0, 1, 2, 3, 4]]

    def test_in_a_storm_they_wait_for_each_other(self, writer, double, asked, monkeypatch):
        monkeypatch.setattr(module, "HELD_QUIET_S", 30.0)
        monkeypatch.setattr(module, "GATHER_S", 30.0)
        submit(writer, letter("just written"))
        for number in range(3):
            writer.ask_together(double, number, lambda answer: None)
        writer.ask(lambda store: None, lambda answer: None)  # waits for nobody
        writer.flush()
        assert asked == [[0, 1, 2]]

    def test_they_are_put_before_what_waits_is_written(self, writer, store):
        stored = []

        def look(store, numbers):
            stored.append(list(store.saved))
            return numbers

        store.gate = threading.Event()
        writer.submit(letter("first"), lambda: None)
        assert store.entered.wait(60)
        writer.submit(letter("second"), lambda: None)
        writer.ask_together(look, 1, lambda answer: None)
        store.gate.set()
        writer.flush()
        assert (stored, store.saved) == ([["first"]], ["first", "second"])

    def test_another_kind_is_another_call(self, ask_all, double, asked):
        def triple(store, numbers):
            asked.append(list(numbers))
            return [3 * number for number in numbers]

        assert ask_all((double, 1), (triple, 1), (double, 2)) == [2, 4, 3]
        assert asked == [[1, 2], [1]]

    def test_one_that_the_store_refuses_spoils_none_of_the_others(self, ask_all, double, asked):
        assert ask_all((double, 1), (double, None), (double, 2)) == [2, None, 4]
        assert asked == [[1, None, 2], [1], [None], [2]]

    def test_a_store_that_is_away_is_asked_once(self, ask_all):
        calls = []

        def away(store, numbers):
            calls.append(numbers)
            raise StoreUnavailable

        assert ask_all((away, 1), (away, 2)) == [None, None]
        assert len(calls) == 1


class FakeScribe:
    """Takes batches of at least three; saves them, or is gone."""

    def __init__(self):
        self.saved, self.gone, self.stopped = [], False, False

    def takes(self, records):
        return len(records) >= 3

    def save(self, records):
        if self.gone:
            raise ScribeGone
        self.saved += [made.task_id for made in records]

    def stop(self):
        self.stopped = True


def submit_a_storm(writer, store, *names):
    store.gate = threading.Event()
    writer.submit(letter("first"), lambda: None)
    assert store.entered.wait(60)
    safe = [threading.Event() for _ in names]
    for name, event in zip(names, safe, strict=True):
        writer.submit(letter(name), event.set)
    store.gate.set()
    writer.flush()
    assert all(event.is_set() for event in safe)


def test_a_storm_is_saved_by_the_scribe(writer, store):
    scribe = FakeScribe()
    writer.employ(scribe)
    submit_a_storm(writer, store, "a", "b", "c")
    assert (store.saved, scribe.saved) == (["first"], ["a", "b", "c"])
    writer.stop()
    assert scribe.stopped


def test_what_a_scribe_leaves_undone_is_saved_in_the_worker(writer, store):
    scribe = FakeScribe()
    scribe.gone = True
    writer.employ(scribe)
    submit_a_storm(writer, store, "a", "b", "c")
    assert store.saved == ["first", "a", "b", "c"]
