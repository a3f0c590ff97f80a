import pytest

from celery_dlq import Filter, Leave
from celery_dlq.errors import HandlerError, SettingsError
from celery_dlq.model.handling import Discard, Escalate, Redrive, Ticket
from celery_dlq.model.states import State
from celery_dlq.upkeep.automation.definition import Handler


def leave(letter):
    return Leave()


def handler(**changes):
    values = {
        "name": "repair", "function": leave, "where": Filter(task="charge"), "all": False,
        "timeout": 60.0, "version": "1", "per_hour": 10, "once_per_group": False,
    }  # fmt: skip
    return Handler(**{**values, **changes})


def test_what_makes_sense_is_accepted():
    one = handler(where=Filter(), all=True, queue="repairs", timeout=1, per_hour=1_000_000)
    assert (one.scope.name, one.scope.version, one.scope.where) == ("repair", "1", Filter())
    assert handler(where=Filter(states=frozenset({State.DEAD}), task="charge")).queue is None


@pytest.mark.parametrize(
    ("field", "value", "allowed"),
    [
        ("name", "a b", "a name of 1 to 64 letters"),
        ("name", "", "a name of 1 to 64 letters"),
        ("where", {"task": "charge"}, "a celery_dlq.Filter"),
        ("all", "yes", "True or False"),
        ("timeout", 0, "a number of seconds from 1 to 3600"),
        ("timeout", None, "a number of seconds from 1 to 3600"),
        ("version", "", "a string of 1 to 64 characters"),
        ("version", 2, "a string of 1 to 64 characters"),
        ("per_hour", None, "a whole number from 1 to 1000000"),
        ("per_hour", 0, "a whole number from 1 to 1000000"),
        ("once_per_group", 1, "True or False"),
        ("queue", "", "a non-empty string, or None"),
    ],
)
def test_a_wrong_value_is_named_with_what_is_allowed(field, value, allowed):
    with pytest.raises(SettingsError) as caught:
        handler(**{field: value})
    said = str(caught.value)
    assert said.startswith("Handler ")
    assert f"{field} must be {allowed}" in said
    assert f", not {value!r}." in said
    assert said.endswith("See `celery dlq help repair-and-escalate`.")


def test_all_problems_are_named_at_once():
    with pytest.raises(SettingsError, match=r"timeout must be .*\. per_hour must be .*"):
        handler(timeout=0, per_hour=0)


def test_a_filter_that_matches_everything_needs_to_say_so():
    with pytest.raises(SettingsError, match="where matches every letter; restrict it, or give"):
        handler(where=Filter())
    with pytest.raises(SettingsError, match="all=True and where contradict each other"):
        handler(all=True)


def test_handlers_get_dead_letters_only():
    with pytest.raises(
        SettingsError, match=r"where.states has parked, resolved; only dead letters"
    ):
        handler(
            where=Filter(task="a", states=frozenset({State.PARKED, State.RESOLVED, State.DEAD}))
        )


def test_a_function_that_would_not_run_is_refused():
    async def repair(letter): ...

    with pytest.raises(SettingsError, match="is a coroutine function, which would not run"):
        handler(function=repair)
    with pytest.raises(SettingsError, match="is a class; give an instance"):
        handler(function=Handler)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Redrive(args="17"), r"Redrive\(args=str\): give a list, or None"),
        (lambda: Redrive(kwargs=[1]), r"Redrive\(kwargs=list\): give a dict, or None"),
        (lambda: Redrive(headers="x"), r"Redrive\(headers=str\): give a dict"),
        (lambda: Discard(" "), r"Discard\(reason=' '\): give a text"),
        (lambda: Discard(None), r"Discard\(reason=None\): give a text"),
        (lambda: Ticket("javascript:alert(1)"), "begins with https:// or http://"),
        (lambda: Ticket(None), "begins with https:// or http://"),
        (lambda: Escalate("", "why"), r"Escalate\(to=''\): give a text"),
        (lambda: Escalate("ops", ""), r"Escalate\(why=''\): give a text"),
    ],
)
def test_verdicts_are_checked_when_they_are_made(make, said):
    with pytest.raises(HandlerError, match=said):
        make()


def test_a_redrive_has_the_changes_that_are_given():
    assert Redrive().changes == {}
    assert Redrive(args=[], kwargs={"a": 1}).changes == {"args": [], "kwargs": {"a": 1}}
