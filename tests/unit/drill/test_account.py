"""The account of a drill, and the settings that it names."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from celery_dlq.drill.account import Facts, Result, account_of
from celery_dlq.drill.ground import End
from celery_dlq.drill.scenarios import SCENARIOS
from celery_dlq.model.states import Reason, State
from celery_dlq.settings import Settings

DONE = End(task_id="1", is_done=True, state=None, reason=None, begun=1, finished=1)
LOST = End(task_id="2", is_done=False, state=None, reason=None, begun=1, finished=0)
LETTER = replace(LOST, state=State.DEAD, reason=Reason.TERMINAL)


def facts(driver="redis", *, conf=None, pool="prefork", ended_alone=0, **settings):
    given = SimpleNamespace(**{"broker_connection_retry": True, **(conf or {})})
    return Facts(
        conf=given, settings=replace(Settings(), **settings), driver=driver, pool=pool,
        ended_alone=ended_alone,
    )  # fmt: skip


def account(name, ends, found=None):
    scenario = SCENARIOS[name]
    return account_of(name, scenario.title, ends, scenario.is_right, found or facts(), 1.26)


def test_messages_that_end_as_they_should_are_counted():
    twice = replace(DONE, begun=2)
    often = replace(DONE, begun=3)
    found = account("kill-worker", [DONE, twice, often, LETTER, LETTER])
    assert (found.result, found.sent, found.done, found.letters) == (Result.OK, 5, 3, 2)
    assert found.seconds == 1.3
    assert found.text == (
        "1 done, 1 done after a second run, 1 done after 3 runs, 2 letters (terminal)"
    )


def test_a_letter_is_not_called_lost_because_its_worker_was():
    found = account("kill-worker", [replace(LETTER, reason=Reason.LOST)])
    assert found.text == "1 letter (worker killed)"


@pytest.mark.parametrize(
    ("name", "end", "found", "setting"),
    [
        ("recover", LETTER, facts(max_attempts=1), "dlq_max_attempts is 1"),
        ("kill-process", LOST, facts(restore_unacked=False), "dlq_restore_unacked is off"),
        ("kill-worker", LOST, facts(recorder=False), "dlq_recorder is off"),
        ("kill-worker", LOST, facts(restore_unacked=False), "dlq_restore_unacked is off"),
        ("kill-worker", LOST, facts("filesystem"), "this broker deletes a message"),
        ("kill-worker", LOST, facts(), "the doctor's line about taking"),
        ("kill-worker", LOST, facts("amqp"), "no setting explains this"),
        ("poison", LOST, facts(restore_unacked=False), "dlq_restore_unacked is off"),
        ("time-limit", DONE, facts(pool="threads"), "the pool threads cannot end a task"),
        ("time-limit", DONE, facts(), "no setting explains this"),
        ("store-cut", LOST, facts(), "dlq_spool_dir"),
        ("broker-cut", LOST, facts(conf={"broker_connection_retry": False}), "broker_connection_retry"),
        ("fail", LOST, facts(), "no setting explains this"),
        ("unreadable", LETTER, facts(), "no setting explains this"),
        ("send-cut", replace(DONE, begun=2), facts(), "1 done after a second run; no setting"),
    ],
)  # fmt: skip
def test_a_gap_names_the_setting_that_closes_it(name, end, found, setting):
    gap = account(name, [end], found)
    assert gap.result is Result.GAP
    assert setting in gap.text


def test_a_worker_that_ends_with_its_connection_is_a_gap_although_nothing_is_lost():
    found = facts(conf={"broker_connection_retry": False}, ended_alone=1)
    gap = account("broker-cut", [DONE], found)
    assert (gap.result, gap.done) == (Result.GAP, 1)
    assert "the worker ended by itself; broker_connection_retry is off" in gap.text


def test_a_worker_may_end_with_a_task_that_kills_it():
    poison = replace(LETTER, reason=Reason.POISON)
    assert account("poison", [poison], facts(ended_alone=3)).result is Result.OK


def test_a_letter_that_was_sent_back_twice_is_a_gap():
    once = replace(DONE, state=State.RESOLVED, begun=2)
    assert account("redrive-killed", [once]).result is Result.OK
    assert account("redrive-killed", [once, replace(once, finished=2)]).result is Result.GAP
    waiting = replace(LETTER, state=State.CLAIMED)
    assert "letter that is claimed" in account("redrive-killed", [waiting]).text
