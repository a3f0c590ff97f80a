"""What automatic redrives send, on a clock that the test moves."""

from collections import Counter
from datetime import timedelta

import pytest
from support.auto_world import CHARGES, auto
from support.factories import T0

from celery_dlq import (
    Filter,
    Guard,
    Limits,
    Orders,
    Pacing,
    Repair,
    Requirements,
    Suspension,
    Timetable,
)
from celery_dlq.errors import SettingsError
from celery_dlq.model.automation import EVERY, AutoState
from celery_dlq.model.worker import Circuit, CircuitState
from celery_dlq.redrive.letter.functions import functions_of

MINUTE = 60.0


def test_a_letter_goes_back_when_its_pause_is_over(world):
    w = world(auto())
    w.now = w.now.replace(hour=12, minute=5)
    w.die("a", minutes=0)
    w.round()
    assert w.sent == []
    w.pass_(5 * MINUTE)
    w.round()
    assert w.sent == ["a"]
    assert w.states() == {"a": "resolved"}


def test_its_letters_are_changed_by_a_repair_of_the_app(app, world):
    def dollars(args, kwargs, headers):
        return args, {"currency": "USD"}, headers

    functions_of(app).repairs["in dollars"] = dollars
    w = world(auto(orders=Orders(repair=Repair(function="in dollars"))))
    w.die("a")
    w.round()
    [sending] = w.store.sendings.of_letter("a")
    assert (w.sent, sending.change.splitlines()[-1]) == (["a"], '+ kwargs.currency = "USD"')
    with pytest.raises(
        SettingsError, match="orders: 'dollars' is not a repair of this app; did you"
    ):
        world(auto(orders=Orders(repair=Repair(function="dollars"))))


def test_it_looks_again_only_when_its_time_has_come(world):
    w = world(auto(when=Timetable(every_s=300)))
    w.die("a")
    w.round()
    w.die("b")
    w.round()
    assert w.sent == ["a"]
    w.pass_(300)
    w.round()
    assert w.sent == ["a", "b"]


def test_a_letter_that_fails_again_waits_longer_each_time_and_is_then_held(world):
    w = world(auto(when=Timetable(every_s=60), suspend=Suspension(of_last=100)))
    w.fails = lambda _task_id: True
    w.die("a")
    times = []
    for _minute in range(200):
        before = len(w.sent)
        w.round()
        times += [w.now] * (len(w.sent) - before)
        w.pass_(MINUTE)
    assert len(times) == 3
    first, second, third = times
    assert (second - first).total_seconds() >= 2 * 600
    assert (third - second).total_seconds() >= 4 * 600
    held = w.store.automations.held(["a"])["a"]
    assert (held.name, held.why) == (
        "charges", "it was redriven by itself 3 times and failed again",
    )  # fmt: skip
    assert w.store.automations.count_held() == {"charges": 1}
    [found] = w.store.letters.find(Filter(held=True), limit=5).letters
    assert found.task_id == "a"


def test_a_letter_that_fails_differently_is_held(world):
    w = world(auto(when=Timetable(every_s=60)))
    w.fails, w.fingerprint_of = (lambda _id: True), (lambda _id: "another")
    w.die("a")
    for _minute in range(60):
        w.round()
        w.pass_(MINUTE)
    assert w.sent == ["a"]
    assert "differently" in w.store.automations.held(["a"])["a"].why


def test_the_first_that_matches_takes_the_letter(world):
    w = world(
        auto("patient", after_s=86_400.0, where=Filter(ids=("a",))),
        auto("all", where=CHARGES),
    )
    w.die("a", "b")
    w.round()
    assert w.sent == ["b"]


def test_one_that_only_records_does_not_keep_letters_from_one_that_sends(world):
    w = world(auto("trial", mode="shadow"), auto("real"))
    w.die("a")
    w.round()
    assert w.sent == ["a"]
    assert {one.name for one in w.store.automations.find().rows} == {"real", "trial"}


def test_shadow_mode_names_the_letters_that_the_real_mode_then_sends(world):
    limits = Limits(per_run=3)
    w = world(auto(mode="shadow", limits=limits))
    w.die("a", "b", "c", "d", "e")
    w.round()
    rows = w.store.automations.find(name="charges").rows
    would = sorted(one.task_id for one in rows)
    assert (w.sent, len(rows)) == ([], 3)
    assert set(w.states().values()) == {"dead"}
    w = world(auto(limits=limits))
    w.pass_(300)
    w.round()
    assert sorted(w.sent) == would


def test_shadow_mode_names_a_letter_once_for_each_failure(world):
    w = world(auto(mode="shadow", when=Timetable(every_s=60)))
    w.die("a")
    for _round in range(3):
        w.round()
        w.pass_(MINUTE)
    assert len(w.store.automations.find(name="charges").rows) == 1


def open_circuit(w):
    """Open the circuit of the task for two hours."""

    def opened(_circuit, now):
        return Circuit(
            task="shop.charge", state=CircuitState.HALF_OPEN, opened_at=now, probe_at=now,
            probe_until=now + timedelta(hours=2),
        )  # fmt: skip

    w.store.circuits.change({("shop.charge", ""): opened})


def close_circuit(w):
    w.store.circuits.change({("shop.charge", ""): lambda circuit, _now: Circuit(task=circuit.task)})


def test_no_letter_goes_back_while_the_circuit_of_its_task_is_open(world):
    w = world(auto(require=Requirements(closed_circuit=True), when=Timetable(every_s=60)))
    open_circuit(w)
    w.die("a")
    w.round()
    look = w.engine.look("charges")
    assert w.sent == []
    assert dict(look.waiting) == {"the circuit of shop.charge is half open": 1}
    close_circuit(w)
    w.pass_(MINUTE)
    w.round()
    assert w.sent == ["a"]


def test_after_an_hour_of_outage_all_that_died_in_it_goes_back_once(world):
    """Two messages die in each minute. The first ones die before the circuit opens, and go back too early."""
    limits = Limits(per_letter=2, growth=1.0, per_run=30)
    w = world(
        auto(
            after_s=2 * MINUTE,
            require=Requirements(closed_circuit=True),
            when=Timetable(every_s=MINUTE),
            limits=limits,
        )
    )
    w.fails = lambda _task_id: True
    names = []
    for minute in range(60):
        arrived = [f"{minute}-first", f"{minute}-second"]
        w.die(*arrived, minutes=(w.now - T0).total_seconds() / MINUTE)
        names += arrived
        if minute == 3:
            before = list(w.sent)
            open_circuit(w)
        w.round()
        w.pass_(MINUTE)
    assert before, "some went back before the circuit was open"
    assert w.sent == before, "nothing goes back while it is open"
    close_circuit(w)
    w.fails = lambda _task_id: False
    for _round in range(10):
        w.round()
        w.pass_(MINUTE)
    assert w.states() == dict.fromkeys(names, "resolved")
    assert Counter(w.sent) == Counter(before) + Counter(names)
    assert max(Counter(w.sent).values()) <= limits.per_letter
    assert w.store.automations.count_held() == {}


def test_an_operation_that_runs_stops_when_the_circuit_opens(world):
    w = world(
        auto(
            require=Requirements(closed_circuit=True),
            orders=Orders(pacing=Pacing(batch=1)),
        )
    )
    w.die("a", "b", "c")

    def publish(letters, publish=w.publish):
        sent = publish(letters)
        w.store.circuits.change(
            {
                ("shop.charge", ""): lambda _circuit, now: Circuit(
                    task="shop.charge", state=CircuitState.HALF_OPEN, opened_at=now, probe_until=now
                )
            }
        )
        return sent

    w.publish = publish
    w.round()
    assert w.sent == ["a"]
    assert w.states() == {"a": "resolved", "b": "dead", "c": "dead"}
    [operation] = w.store.operations.find()
    assert (operation.state.value, operation.who) == ("cancelled", "auto:charges")
    assert operation.cause == "the circuit of shop.charge is half open"


def test_letters_that_were_not_sent_do_not_count_for_their_limit(world):
    w = world(auto(limits=Limits(per_letter=1), when=Timetable(every_s=60)))
    w.die("a")
    w.engine.run(w.lease, lambda: w.lease)
    w.store.automations.set_state("charges", AutoState.PAUSED, who="tester", now=w.now)
    w.round()
    [operation] = w.store.operations.find()
    assert (operation.state.value, operation.cause) == ("cancelled", "it is paused by tester")
    w.store.automations.set_state("charges", AutoState.ACTIVE, who="tester", now=w.now)
    w.pass_(MINUTE)
    w.round()
    assert w.sent == ["a"]


def test_a_pause_also_stops_operations_of_one_that_this_worker_does_not_know(world):
    w = world(auto())
    w.die("a")
    w.engine.run(w.lease, lambda: w.lease)
    w.engine.autos.clear()
    w.store.automations.set_state(EVERY, AutoState.PAUSED, who="tester", now=w.now)
    w.run_operations()
    assert w.sent == []
    [operation] = w.store.operations.find()
    assert operation.cause == "all automations are paused by tester"


@pytest.mark.parametrize("name", ["charges", EVERY])
def test_nothing_is_sent_while_it_or_all_are_paused(world, name):
    w = world(auto())
    w.store.automations.set_state(name, AutoState.PAUSED, who="tester", why="audit", now=w.now)
    w.die("a")
    w.round()
    assert w.sent == []
    w.store.automations.set_state(name, AutoState.ACTIVE, who="tester", now=w.now)
    w.round()
    assert w.sent == ["a"]


def test_it_suspends_itself_when_its_redrives_fail(world, caplog):
    suspend = Suspension(success_below=0.5, of_last=4)
    w = world(auto(suspend=suspend, when=Timetable(every_s=60)))
    w.fails = lambda _task_id: True
    w.die("a", "b", "c", "d")
    w.round()
    w.pass_(MINUTE)
    w.round()
    assert w.state("charges") == "suspended"
    assert "0 of its last 4 redrives succeeded, fewer than 50%" in caplog.text
    w.die("e")
    w.pass_(3600)
    w.round()
    assert "e" not in w.sent


def test_outcomes_from_before_it_was_resumed_do_not_count(world):
    suspend = Suspension(of_last=4)
    w = world(auto(suspend=suspend, when=Timetable(every_s=60)))
    w.fails = lambda _task_id: True
    w.die("a", "b", "c", "d")
    w.round()
    w.pass_(MINUTE)
    w.round()
    w.fails = lambda _task_id: False
    w.store.automations.set_state("charges", AutoState.ACTIVE, who="tester", now=w.now)
    w.pass_(3600)
    w.round()
    w.pass_(MINUTE)
    w.round()
    assert w.state("charges") == "active"
    assert set(w.states().values()) == {"resolved"}


def test_it_suspends_itself_when_its_canary_fails(world):
    w = world(auto(orders=Orders(pacing=Pacing(canary=1)), when=Timetable(every_s=60)))
    w.fails = lambda _task_id: True
    w.die("a", "b")
    w.round()
    w.pass_(MINUTE)
    w.round()
    assert w.sent == ["a"]
    assert w.state("charges") == "suspended"
    assert "aborted: the canary failed" in w.store.automations.statuses()["charges"].why


def test_a_day_has_its_limit(world):
    w = world(auto(limits=Limits(per_day=2), when=Timetable(every_s=60)))
    w.die("a", "b", "c")
    w.round()
    w.pass_(MINUTE)
    w.round()
    assert len(w.sent) == 2
    assert w.engine.look("charges").why_not == (
        "it has sent 2 letters within a day (limits.per_day)"
    )
    w.pass_(86_400)
    w.round()
    assert len(w.sent) == 3


def test_all_together_have_a_budget(world):
    w = world(
        auto("a", where=Filter(ids=("a",))),
        auto("rest"),
        auto_redrive_budget=2,
    )
    w.die("a", "b", "c")
    w.round()
    assert sorted(w.sent) == ["a", "b"]
    w.pass_(3_601)
    w.round()
    assert sorted(w.sent) == ["a", "b", "c"]


def test_a_letter_of_the_release_that_runs_waits_for_another_one(world):
    w = world(auto(require=Requirements(new_release=True)), release="1.4.2")
    w.die("old", release="1.4.1")
    w.die("new", release="1.4.2")
    w.round()
    assert w.sent == ["old"]


def test_letters_of_tasks_that_report_no_outcome_are_left_alone(world):
    w = world(auto())
    w.silent = {"shop.charge"}
    w.die("a")
    w.round()
    assert w.sent == []
    [why] = w.engine.look("charges").waiting
    assert "not on DLQTask" in why


def test_nothing_is_sent_outside_the_hours(world):
    w = world(auto(when=Timetable(hours="22:00-06:00", every_s=60)))
    w.die("a")
    w.round()
    assert w.sent == []
    w.now = w.now.replace(hour=22)
    w.round()
    assert w.sent == ["a"]


def test_a_runner_that_has_lost_its_lease_begins_nothing(world):
    w = world(auto())
    w.die("a")
    w.store.leases.give_up(w.lease)
    w.take_lease("another worker")
    w.round()
    assert w.sent == []
    assert w.store.automations.find().rows == ()


def test_a_clock_that_is_set_back_does_not_stop_it(world):
    w = world(auto(after_s=60.0, when=Timetable(every_s=3600)))
    w.round()
    w.pass_(-1800)
    w.die("a")
    w.round()
    assert w.sent == ["a"]


def test_a_requirement_that_can_never_hold_stops_the_worker_at_its_start(world):
    with pytest.raises(SettingsError, match="needs dlq_release"):
        world(auto(require=Requirements(new_release=True)))


def test_the_guard_cannot_be_switched_off():
    with pytest.raises(SettingsError, match="guard cannot be switched off"):
        auto(orders=Orders(guard=Guard(enabled=False)))


@pytest.mark.parametrize(
    ("option", "said"), [("approve", "a second person"), ("never", "never redriven")]
)
def test_letters_that_people_must_decide_about_are_left_to_them(world, app, option, said):
    app.tasks["shop.charge"].dlq_redrive = option
    w = world(auto())
    w.die("a", "b")
    w.pass_(3_600)
    w.round()
    assert (w.sent, w.operations.find()) == ([], [])
    [(why, count)] = w.engine.look("charges").waiting.items()
    assert said in why
    assert count == 2
