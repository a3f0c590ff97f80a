"""The lines about letters in a worker's log."""

import logging

import pytest
from support.factories import letter

from celery_dlq.model.states import State
from celery_dlq.worker.writing.writer import MOST, SPAN_S, Notices


@pytest.fixture
def notices(clock):
    return Notices(clock)


@pytest.fixture
def said(caplog):
    caplog.set_level(logging.INFO, "celery_dlq.letters")
    return lambda: [record.getMessage() for record in caplog.records]


def letters(count):
    return [letter(f"id-{number}") for number in range(count)]


def test_a_line_names_the_letter_its_task_and_its_reason(notices, said):
    notices.log([letter("a1"), letter("p1", state=State.PARKED)])
    assert said() == ["dead letter a1 of task shop.charge: terminal, ValueError by rule python.bug"]


def test_a_hostile_name_stays_on_its_line(notices, said):
    notices.log([letter("a\nCRITICAL \x1b[2J")])
    assert said()[0].startswith("dead letter a\\nCRITICAL \\x1b[2J of task")


def test_in_a_storm_the_others_are_counted(notices, said, clock):
    notices.log(letters(MOST + 7))
    notices.log_others()
    assert len(said()) == MOST
    clock.now += SPAN_S
    notices.log_others()
    notices.log_others()
    assert said()[MOST:] == ["dead letters without a line of their own: 7"]
    notices.log(letters(1))
    assert len(said()) == MOST + 2


def test_a_writer_that_stops_says_how_many_more_there_were(writer, said):
    for one in letters(MOST + 1):
        writer.write(one, lambda: None)
    writer.stop()
    assert len(said()) == MOST + 1
    assert said()[-1] == "dead letters without a line of their own: 1"


def test_the_logger_can_be_switched_off(notices, said, caplog):
    caplog.set_level(logging.WARNING, "celery_dlq.letters")
    notices.log(letters(3))
    assert said() == []
