"""What may become of a message that came back, and how it is counted."""

from dataclasses import replace
from datetime import timedelta
from functools import partial
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.factories import T0, delivery

from celery_dlq.base import process
from celery_dlq.model.worker import GIVEN_BACK
from celery_dlq.worker.admission.deliveries import (
    AHEAD,
    HOPELESS,
    Deliveries,
    Fate,
    begin,
    fate_after,
    next_number,
    note_deaths,
)

LIMIT = 3


def message(headers=None, version="3.13.7", **info):
    connection = SimpleNamespace(server_properties={"version": version})
    channel = SimpleNamespace(connection=connection)
    return SimpleNamespace(delivery_info=info, headers=headers, channel=channel)


def test_the_first_delivery_counts_though_it_is_not_on_record():
    assert next_number([]) == 2
    assert next_number([delivery(number=1)]) == 2
    assert next_number([delivery(number=2), delivery(number=3)]) == 4


@pytest.mark.parametrize(
    ("numbers", "own", "expected"),
    [
        ([], False, Fate.RUN),
        ([2], False, Fate.RUN_ALONE),
        ([2, 3], False, Fate.RUN_ALONE),
        ([1], True, Fate.RUN),
        ([1, 2], True, Fate.RUN),
        ([2, 3], True, Fate.POISON),
        ([1, 2, 3], True, Fate.POISON),
    ],
)
def test_a_last_run_is_alone_unless_guilt_is_proven(numbers, own, expected):
    earlier = [delivery(number=number) for number in numbers]
    if own:
        earlier[0] = delivery(number=numbers[0], death="signal 11")
    assert fate_after(earlier, LIMIT) is expected


def test_without_proof_three_times_the_limit_ends_it():
    deaths = [delivery(number=number) for number in range(2, HOPELESS * LIMIT + 1)]
    assert fate_after(deaths[:-1], LIMIT) is Fate.RUN_ALONE
    assert fate_after(deaths, LIMIT) is Fate.POISON


@given(
    limit=st.integers(1, 5),
    runs=st.lists(st.sampled_from(["ends", "dies in company", "dies alone", "dies in sight"])),
)
def test_only_who_died_by_itself_or_beyond_hope_is_condemned(limit, runs):
    """Any history of one message: an end is forgotten, a death is kept."""
    known = []
    for number, how in enumerate(runs):
        verdict = fate_after(known, limit)
        if verdict is Fate.POISON:
            own = any(item.is_to_blame for item in known)
            assert next_number(known) > (limit if own else HOPELESS * limit)
            return
        if how == "ends":
            known = []
            continue
        known.append(
            delivery(
                number=next_number(known),
                minutes=number,
                alone=verdict is Fate.RUN_ALONE and how != "dies in company",
                death="signal 9" if how == "dies in sight" else "",
            )
        )
        assert len(known) < HOPELESS * limit + 1, "stopped after finitely many"


@given(st.data(), st.integers(2, 4), st.integers(2, 6), st.integers(1, 3))
def test_beside_killers_the_innocent_survive_and_the_killers_are_stopped(
    data, limit, size, killers
):
    """Workers that die whole: in each life some messages are started, killers among them or not. The
    rule for being alone is the worker's; everything else is the schedule's choice."""
    known = {number: [] for number in range(size)}
    poison, waiting = set(range(min(killers, size))), set(range(size))
    condemned, turns = set(), 0
    while waiting & poison:
        turns += 1
        assert turns <= 2 * size * (limit + 1), "the killers should be stopped by now"
        order = data.draw(st.permutations(sorted(waiting)))
        company = []
        for number in order:
            verdict = fate_after(known[number], limit) if turns > 1 else Fate.RUN
            if verdict is Fate.POISON:
                condemned.add(number)
                waiting.discard(number)
            elif verdict is Fate.RUN_ALONE:
                alone = delivery(number=next_number(known[number]), minutes=turns, alone=True)
                if number in poison:
                    known[number] = [*known[number], alone]
                    company = []
                    break
                waiting.discard(number)
            else:
                company.append(number)
        if set(company) & poison and turns > 1:
            for number in company:
                started = delivery(number=next_number(known[number]), minutes=turns)
                known[number] = [*known[number], started]
    assert condemned == poison


@pytest.fixture
def store(own_store):
    return own_store


def begin_one(store, wanted, **options):
    [begun] = store.deliveries.begin([(wanted, partial(begin, limit=LIMIT, **options))])
    return begun


def test_a_delivery_is_written_down_before_it_starts(store):
    begun = begin_one(store, delivery(number=0))
    assert begun.started == delivery(number=2)
    assert store.deliveries.find("0d3f", "shop.charge") == (begun.started,)


def test_what_must_be_alone_is_not_written_down_before_it_is(store):
    store.deliveries.put(delivery(number=2))
    wanted = delivery(number=0, minutes=1)
    waits = begin_one(store, wanted)
    assert (waits.fate, waits.started) == (Fate.RUN_ALONE, None)
    assert len(store.deliveries.find("0d3f", "shop.charge")) == 1
    begun = begin_one(store, delivery(number=0, minutes=1, alone=True), patient=False)
    assert (begun.started.number, begun.started.alone) == (3, True)


def test_a_redrive_and_a_retry_start_to_count_anew(store):
    for number, changes in enumerate(({"redrive": 0}, {"attempt": 1}, {"redrive": 1})):
        store.deliveries.put(delivery(number=9, minutes=number, alone=True, **changes))
    for wanted in (delivery(redrive=2), delivery(attempt=2), delivery(redrive=1, attempt=2)):
        assert begin_one(store, wanted).earlier == ()


def test_another_apps_task_of_the_same_id_is_another_message(store):
    store.deliveries.put(delivery(number=3, alone=True, task="stock.count"))
    assert begin_one(store, delivery(minutes=1)).earlier == ()


def test_a_copy_that_still_runs_did_not_die(store):
    """Redis hands a task out again that takes longer than the visibility timeout."""
    for minute in range(5):
        begun = begin_one(store, delivery(minutes=minute, process=process.identity()))
        assert begun.fate is Fate.RUN
    seen = delivery(minutes=9, process=process.identity(), death="signal 9")
    assert len(note_deaths(store, [seen])) == 1


def test_a_death_in_sight_of_the_parent_counts_though_the_parent_lives(store):
    first = delivery(number=1, process=process.identity(), death="signal 9")
    assert [item.number for item in note_deaths(store, [first])] == [1]
    second = begin_one(store, delivery(minutes=1, process=process.identity()))
    assert second.started.number == 2


def test_deaths_are_counted_where_the_broker_does_not_mark_what_comes_back(store):
    deaths = [delivery(number=1, minutes=minutes, death="signal 9") for minutes in range(3)]
    assert [note_deaths(store, [death])[-1].number for death in deaths] == [1, 2, 3]


def test_a_death_that_was_not_counted_at_its_start_gets_its_number(store):
    store.deliveries.put(delivery(number=2))
    *_, last = note_deaths(store, [delivery(number=0, minutes=1, death="signal 9")])
    assert last.number == 3


class Desk:
    """Asks a store at once, or only when the test lets it."""

    def __init__(self, store):
        self.store, self.waiting, self.holds, self.is_away = store, [], False, False
        self.together = []

    def ask(self, question, then):
        self.waiting.append((question, then))
        if not self.holds:
            self.answer()

    def ask_together(self, question, about, then):
        self.together.append((question, about, then))
        self.ask(lambda store: question(store, [about])[0], then)

    def answer_together(self):
        """Answer all questions in one call, as the writer does with those that wait."""
        together, self.together, self.waiting = self.together, [], []
        [put_to] = {question for question, _, _ in together}
        answers = put_to(self.store, [about for _, about, _ in together])
        for (_, _, then), answer in zip(together, answers, strict=True):
            then(answer)

    def answer(self):
        while self.waiting:
            question, then = self.waiting.pop(0)
            then(None if self.is_away else question(self.store))


class Suspect:
    """A request that came back; what became of it is on the list."""

    _dlq_count = object()

    def __init__(self, headers=None, minutes=0, id="0d3f"):
        self.message, self.minutes = message(headers, redelivered=True), minutes
        self.id, self.became = id, []

    def as_delivery(self, process, *, alone=False, death=""):
        return delivery(self.id, number=0, minutes=self.minutes, alone=alone, death=death)

    def run_counted(self, known):
        self.became.append(("runs", len(known)))

    def condemn(self, known):
        self.became.append(("condemned", len(known)))


class Isolation:
    """Lets one in at once; notes what is done to slots."""

    def __init__(self):
        self.slots_given_back, self.keeps, self.alone = 0, False, True
        self.line = []

    def keeps_out(self, suspect):
        return self.keeps

    def enter(self, suspect, start, joined):
        self.joined = joined
        start(self.alone)

    def next_in_line(self, most):
        return self.line[:most]

    def expect(self, suspect): ...

    def arrived(self, suspect): ...

    def stop(self): ...

    def give_slot_back(self):
        self.slots_given_back += 1


@pytest.fixture
def desk(store):
    return Desk(store)


@pytest.fixture
def isolation():
    return Isolation()


@pytest.fixture
def deliveries(desk, isolation):
    return Deliveries(desk, LIMIT, isolation=isolation, now=lambda: T0)


def test_a_message_that_kills_its_worker_runs_three_times_and_no_more(deliveries, isolation, store):
    fates = []
    for minute in range(3):
        suspect = Suspect(minutes=minute)
        deliveries.admit(suspect)
        fates += suspect.became
    assert fates == [("runs", 1), ("runs", 2), ("condemned", 2)]
    assert [item.alone for item in store.deliveries.find("0d3f", "shop.charge")] == [False, True]
    assert isolation.slots_given_back == 1


def test_a_store_that_is_away_lets_it_run_with_a_word_in_the_log(deliveries, desk, caplog):
    desk.is_away = True
    suspect = Suspect()
    deliveries.admit(suspect)
    assert suspect.became == [("runs", 0)]
    assert "runs uncounted" in caplog.text


def test_with_the_store_away_a_worker_counts_what_it_sees(deliveries, desk, store):
    desk.is_away, counted = True, []
    for minute in range(3):
        died = delivery(number=1 if minute == 0 else 0, minutes=minute, death="signal 9")
        deliveries.count_death(Suspect(), died, counted.append)
    assert [[item.number for item in known] for known in counted] == [[1], [1, 2], [1, 2, 3]]
    assert [deliveries.is_spent(known, message()) for known in counted] == [False, False, True]


def test_what_a_worker_counted_itself_is_written_down_when_the_store_is_back(
    deliveries, desk, store
):
    desk.is_away, counted = True, []
    deliveries.count_death(Suspect(), delivery(number=1, death="signal 9"), counted.append)
    desk.is_away = False
    second = delivery(number=0, minutes=1, death="signal 9")
    deliveries.count_death(Suspect(), second, counted.append)
    assert [item.number for item in counted[-1]] == [1, 2]
    assert [item.number for item in store.deliveries.find("0d3f", "shop.charge")] == [1, 2]
    assert deliveries._unwritten == {}


@pytest.mark.parametrize(("given_back", "fate"), [(8, ("runs", 0)), (9, ("condemned", 0))])
def test_with_the_store_away_the_brokers_count_is_the_last_resort(
    deliveries, desk, given_back, fate
):
    desk.is_away = True
    suspect = Suspect({"x-delivery-count": given_back})
    deliveries.admit(suspect)
    assert suspect.became == [fate]


@pytest.mark.parametrize("is_away", [False, True])
def test_while_the_store_answers_its_count_decides_and_not_the_brokers(deliveries, desk, is_away):
    """A worker that shuts down gives back what it holds, and RabbitMQ before 4.3 counts that, too."""
    desk.is_away, counted = is_away, []
    deliveries.count_death(Suspect(), delivery(number=1, death="signal 9"), counted.append)
    returned = message({"x-delivery-count": HOPELESS * LIMIT}, redelivered=True)
    assert deliveries.is_spent(counted[-1], returned) is is_away


@pytest.mark.parametrize("death", ["signal 9", "given back by its task: later"])
@pytest.mark.parametrize(("given_back", "is_spent"), [(18, False), (19, True)])
def test_a_message_that_rabbitmq_would_drop_does_not_go_back(
    deliveries, death, given_back, is_spent
):
    deliveries._limit, counted = 50, []
    deliveries.count_death(Suspect(), delivery(number=1, death=death), counted.append)
    last = message({"x-delivery-count": given_back}, version="4.0.5", redelivered=True)
    assert deliveries.is_spent(counted[-1], last) is is_spent


def test_what_was_asked_over_a_lost_connection_does_not_run_and_is_not_counted(
    deliveries, desk, store
):
    desk.holds = True
    suspect = Suspect()
    deliveries.admit(suspect)
    deliveries.stop()
    desk.answer()
    assert suspect.became == []
    assert store.deliveries.find("0d3f", "shop.charge") == ()


def test_what_runs_when_the_worker_is_shut_down_is_not_counted_any_more(deliveries, store):
    running = Suspect()
    deliveries.admit(running)
    assert len(store.deliveries.find("0d3f", "shop.charge")) == 1
    deliveries.stop()
    assert store.deliveries.find("0d3f", "shop.charge") == ()


def test_what_was_seen_to_die_before_the_shutdown_stays_counted(deliveries, store):
    suspect = Suspect()
    deliveries.admit(suspect)
    [started] = store.deliveries.find("0d3f", "shop.charge")
    deliveries.count_death(suspect, replace(started, death="signal 9"), lambda known: None)
    deliveries.stop()
    assert [item.death for item in store.deliveries.find("0d3f", "shop.charge")] == ["signal 9"]


def test_deaths_of_runs_that_were_not_counted_before_are_numbered_by_the_store(deliveries, store):
    numbers = []
    for hour in range(3):
        suspect = Suspect()
        died = replace(suspect.as_delivery("", death="signal 9"), number=int(hour == 0))
        died = replace(died, started_at=T0 + timedelta(hours=hour))
        deliveries.count_death(suspect, died, lambda known: numbers.append(known[-1].number))
    assert numbers == [1, 2, 3]


def test_a_run_that_others_join_is_no_proof(deliveries, isolation, store):
    store.deliveries.put(delivery(number=2))
    suspect, let_in = Suspect(minutes=1), []
    deliveries.admit(suspect)
    assert store.deliveries.find("0d3f", "shop.charge")[1].alone
    isolation.joined(lambda: let_in.append(store.deliveries.find("0d3f", "shop.charge")[1].alone))
    assert let_in == [False], "written down before anybody is let in"


def test_what_is_kept_out_is_neither_asked_about_nor_run(deliveries, isolation, desk):
    isolation.keeps, desk.holds = True, True
    suspect = Suspect()
    deliveries.admit(suspect)
    assert (desk.waiting, suspect.became) == ([], [])


def test_an_error_of_ours_lets_it_run(deliveries, desk, caplog):
    desk.store = None
    suspect = Suspect()
    deliveries.admit(suspect)
    assert suspect.became == [("runs", 0)]
    assert "could not count" in caplog.text


@pytest.mark.parametrize(("takes_back", "spent"), [(True, False), (False, True)])
@pytest.mark.parametrize("death", ["signal 9", f"{GIVEN_BACK}: Reject"])
def test_a_message_ends_at_once_if_the_broker_does_not_take_it_back(
    desk, isolation, takes_back, spent, death
):
    made = Deliveries(desk, LIMIT, isolation=isolation, takes_back=takes_back)
    assert made.is_spent([delivery(number=1, death=death)], message()) is spent


def test_old_deliveries_are_pruned_by_the_way(deliveries, store):
    store.deliveries.put(delivery("old", minutes=-8 * 24 * 60))
    store.deliveries.put(delivery("young", minutes=-6 * 24 * 60))
    deliveries.admit(Suspect())
    assert store.deliveries.find("old", "shop.charge") == ()
    assert len(store.deliveries.find("young", "shop.charge")) == 1


@pytest.fixture
def line(deliveries, isolation):
    """Suspects that wait for a slot, while as many have just got one."""
    for number in range(AHEAD):
        deliveries.admit(Suspect(id=f"before {number}"))
    isolation.line = [Suspect(id=f"next {number}") for number in range(2 * AHEAD)]
    return isolation.line


def counted(store, suspects):
    return [len(store.deliveries.find(one.id, "shop.charge")) for one in suspects]


def test_the_next_in_line_are_counted_in_one_transaction_and_run_in_their_slots(
    deliveries, desk, store, line, monkeypatch
):
    calls = []
    begin = store.deliveries.begin
    monkeypatch.setattr(store.deliveries, "begin", lambda all: calls.append(len(all)) or begin(all))
    desk.holds, desk.together = True, []
    first = Suspect(id="first")
    deliveries.admit(first)
    desk.answer_together()
    assert calls == [1 + AHEAD]
    assert counted(store, [first, *line]) == [1] * (1 + AHEAD) + [0] * AHEAD
    assert [one.became for one in [first, *line]] == [[("runs", 1)], *[[]] * 2 * AHEAD]
    for one in line[:AHEAD]:
        deliveries.admit(one)
    assert [one.became for one in line] == [*[[("runs", 1)]] * AHEAD, *[[]] * AHEAD]
    assert (desk.waiting, calls) == ([], [1 + AHEAD])


def test_no_more_are_counted_ahead_than_have_just_got_a_slot(desk, isolation, store):
    """A message that is counted and waits for hours would be blamed for the death of its worker."""
    now = [T0]
    deliveries = Deliveries(desk, LIMIT, isolation=isolation, now=lambda: now[0])
    isolation.line = [Suspect(id=f"next {number}") for number in range(AHEAD)]
    for number, at in enumerate([0.0, 5.0, 5.03, 5.06]):
        now[0] = T0 + timedelta(seconds=at)
        deliveries.admit(Suspect(id=f"{number}"))
        assert sum(counted(store, isolation.line)) == max(0, number - 1)


def test_one_that_gets_its_slot_before_the_answer_waits_for_it(deliveries, desk, line):
    desk.holds = True
    deliveries.admit(Suspect(id="first"))
    deliveries.admit(line[0])
    assert line[0].became == []
    desk.answer()
    assert [one.became for one in line[:2]] == [[("runs", 1)], []]


@pytest.mark.parametrize("has_slot", [True, False], ids=["with a slot", "without"])
def test_one_that_came_back_twice_is_counted_when_it_has_its_slot(
    deliveries, desk, store, line, has_slot
):
    store.deliveries.put(delivery("next 0", minutes=-1, death="signal 9"))
    desk.holds = True
    deliveries.admit(Suspect(id="first"))
    if has_slot:
        deliveries.admit(line[0])
    desk.answer()
    assert counted(store, line[:2]) == [2 if has_slot else 1, 1]
    if not has_slot:
        deliveries.admit(line[0])
        desk.answer()
    assert line[0].became == [("runs", 2)]


def test_without_the_store_none_is_counted_ahead(deliveries, desk, line):
    desk.holds = desk.is_away = True
    deliveries.admit(Suspect(id="first"))
    deliveries.admit(line[0])
    desk.answer()
    assert [one.became for one in line[:2]] == [[("runs", 0)], []]


@pytest.mark.parametrize("is_answered", [True, False], ids=["answered", "asked"])
def test_those_counted_ahead_over_a_lost_connection_are_not_counted(
    deliveries, desk, store, line, is_answered
):
    desk.holds = not is_answered
    deliveries.admit(Suspect(id="first"))
    deliveries.stop()
    desk.answer()
    assert sum(counted(store, line)) == 0


def test_one_that_did_not_come_back_is_not_counted_ahead(deliveries, desk, isolation, line):
    isolation.line.insert(0, SimpleNamespace(_dlq_count=None))
    isolation.line.insert(0, object())
    deliveries.admit(Suspect(id="first"))
    assert desk.waiting == []
