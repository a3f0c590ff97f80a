"""The database's clock as a process carries it on."""

from datetime import timedelta

import pytest
from support.factories import T0

from celery_dlq.store.database.clock import ASK_S, TOLERATED_S, DatabaseClock, why_wrong


class Machines:
    """A database and a machine whose clocks differ; both run on as the test says."""

    def __init__(self):
        self.counted, self.database, self.machine = 100.0, T0, T0 - timedelta(minutes=10)
        #: Seconds that an answer takes, half of them each way.
        self.answer_s = 0.0
        self.asked = 0
        self.clock = DatabaseClock(
            self.ask, machine_now=lambda: self.machine, counted_s=lambda: self.counted
        )

    def pass_(self, seconds):
        self.counted += seconds
        self.database += timedelta(seconds=seconds)
        self.machine += timedelta(seconds=seconds)

    def ask(self):
        self.asked += 1
        self.pass_(self.answer_s / 2)
        answer = self.database
        self.pass_(self.answer_s / 2)
        return answer


@pytest.fixture
def machines():
    return Machines()


def test_the_time_is_the_databases(machines):
    assert machines.clock.now() == T0
    assert machines.clock.ahead() == timedelta(minutes=10)


def test_a_slow_answer_was_true_half_way(machines):
    machines.answer_s = 3.0
    assert machines.clock.now() == machines.database == T0 + timedelta(seconds=3)


def test_between_two_answers_it_is_carried_on(machines):
    machines.clock.now()
    machines.pass_(ASK_S / 2)
    assert machines.clock.now() == machines.database
    assert machines.asked == 1


def test_it_is_asked_again_before_the_two_drift_apart(machines):
    machines.clock.now()
    machines.pass_(ASK_S)
    machines.database += timedelta(seconds=30)  # another server has taken over
    assert machines.clock.now() == machines.database
    assert machines.asked == 2


def test_somebody_who_sets_the_machines_clock_changes_nothing(machines):
    machines.clock.now()
    machines.machine += timedelta(hours=1)
    assert machines.clock.now() == machines.database
    assert machines.clock.ahead() == timedelta(minutes=-50)


@pytest.mark.parametrize("seconds", [0.0, TOLERATED_S, -TOLERATED_S])
def test_a_few_seconds_are_no_matter(seconds):
    assert why_wrong(timedelta(seconds=seconds)) == ""


def test_more_is_told_with_its_figure_its_side_and_the_next_step():
    behind, ahead = why_wrong(timedelta(seconds=605.4)), why_wrong(timedelta(hours=-1))
    assert "the clock of this machine is 605 seconds behind the database's" in behind
    assert "the clock of this machine is 3,600 seconds ahead of the database's" in ahead
    assert behind.endswith("synchronise both machines with NTP and check with: timedatectl status")
