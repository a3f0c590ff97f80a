"""The decorators that register repairs and upgrades."""

import pytest

from celery_dlq import DeadLetterQueue
from celery_dlq.errors import SettingsError
from celery_dlq.redrive.letter.functions import functions_of


@pytest.fixture
def dlq(shop_app):
    return DeadLetterQueue.of(shop_app)


def one(args, kwargs, headers):
    return args, kwargs, headers


def other(args, kwargs, headers):
    return args, kwargs, headers


def test_a_repair_is_found_by_its_name(dlq):
    assert dlq.repair("currency in capitals")(one) is one
    assert dict(dlq.repairs) == {"currency in capitals": one}


@pytest.mark.parametrize("name", ["", " x", "x ", "a\nb", "x" * 101, None, one])
def test_a_repair_needs_a_name(dlq, name):
    with pytest.raises(SettingsError, match="give a name of 1 to 100 printable characters"):
        dlq.repair(name)


def test_a_name_is_given_once(dlq):
    dlq.repair("x")(one)
    dlq.repair("x")(one)  # its module is imported twice
    with pytest.raises(SettingsError, match=r"one is registered so already; remove it, or .*other"):
        dlq.repair("x")(other)
    assert dlq.repairs["x"] is one


async def asynchronous(args, kwargs, headers): ...


@pytest.mark.parametrize(
    ("function", "said"), [(5, "cannot be called"), (asynchronous, "coroutine"), (dict, "class")]
)
def test_functions_that_would_not_run_are_refused(dlq, function, said):
    for register in (dlq.repair("x"), dlq.upgrade("shop.charge", to="1")):
        with pytest.raises(SettingsError, match=said):
            register(function)
    assert (dict(dlq.repairs), functions_of(dlq.app).upgrades) == ({}, {})


def test_upgrades_are_registered_by_task_and_release(dlq):
    for to in ("2026.12", "2026.9"):
        assert dlq.upgrade("shop.charge", to=to)(one) is one
    dlq.upgrade("shop.charge", to="2026.12")(one)
    assert [made.to for made in functions_of(dlq.app).upgrades["shop.charge"]] == [
        "2026.9",
        "2026.12",
    ]
    with pytest.raises(SettingsError, match="registered so already"):
        dlq.upgrade("shop.charge", to="2026.12")(other)


@pytest.mark.parametrize(
    ("task", "to", "said"),
    [
        ("", "1", "give the name of a task"),
        (one, "1", "give the name of a task"),
        ("shop.charge", "3f2a9c", "has no place among the releases"),
        ("shop.charge", 2026.12, "has no place among the releases"),
    ],
)
def test_an_upgrade_needs_a_task_and_a_release_with_a_place(dlq, task, to, said):
    with pytest.raises(SettingsError, match=said):
        dlq.upgrade(task, to=to)
