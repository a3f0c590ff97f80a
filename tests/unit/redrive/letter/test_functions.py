"""Functions of the user that change messages: calls that hang, and the order of releases."""

import threading

import pytest
from celery import Celery, current_app

from celery_dlq.errors import FunctionHangs, RepairError
from celery_dlq.redrive.letter import functions as module
from celery_dlq.redrive.letter.functions import MOST_HUNG, Calls, Upgrade, functions_of, numbers_of

GIVEN = {"args": [17], "kwargs": {}, "headers": {}}


@pytest.fixture
def app():
    return Celery("unit", set_as_current=False)


@pytest.fixture
def calls(app, monkeypatch):
    monkeypatch.setattr(module, "TIMEOUT_S", 0.05)
    return Calls(app)


@pytest.fixture
def hang():
    """A function that hangs until the test ends."""
    end = threading.Event()
    yield lambda *_: end.wait()
    end.set()


def same(args, kwargs, headers):
    return args, kwargs, headers


def test_a_function_finds_the_app_as_the_current_one(app):
    calls = Calls(app)
    seen = []
    calls.changed(
        lambda *parts: seen.append(current_app._get_current_object()) or parts, "it", GIVEN
    )
    assert seen == [app]


def test_one_that_hangs_concerns_one_letter(calls, hang):
    with pytest.raises(RepairError, match=r"^it did not end within 0\.05 seconds$"):
        calls.changed(hang, "it", GIVEN)
    assert calls.changed(same, "it", GIVEN) == GIVEN


def test_one_that_hangs_repeatedly_ends_the_redrive(calls, hang):
    for _ in range(MOST_HUNG):
        with pytest.raises(RepairError):
            calls.changed(hang, "it", GIVEN)
    with pytest.raises(FunctionHangs, match="restart this process, and resume the redrive"):
        calls.changed(same, "it", GIVEN)


def test_its_own_timeout_is_an_error_like_any_other(app):
    def late(*_):
        raise TimeoutError("the bank")

    with pytest.raises(RepairError, match="it raised TimeoutError: the bank"):
        Calls(app).changed(late, "it", GIVEN)


def test_together_they_cannot_outlast_a_claim():
    from celery_dlq.redrive.loop import CLAIM_LEASE_S, PREPARE_S

    assert PREPARE_S + module.TIMEOUT_S * MOST_HUNG < CLAIM_LEASE_S


@pytest.mark.parametrize(
    ("release", "found"),
    [
        ("2026.12", ("", (2026, 12))), ("2026.12.0", ("", (2026, 12))), ("v1.4.0", ("v", (1, 4))),
        ("shop@1-10_2", ("shop@", (1, 10, 2))), ("0", ("", ())), ("", None), ("3f2a9c1d", None),
        ("1.4.0-rc1", None), ("main", None),
    ],
)  # fmt: skip
def test_the_numbers_of_a_release(release, found):
    assert numbers_of(release) == found


@pytest.mark.parametrize(
    ("release", "is_for"),
    [
        ("2026.9", True), ("2026.11.30", True), ("2026.12", False), ("2026.12.0", False),
        ("2026.12.1", False), ("2027.1", False), ("v2026.1", False), ("", False), ("3f2a9c1d", False),
    ],
)  # fmt: skip
def test_an_upgrade_is_for_earlier_releases(release, is_for):
    assert Upgrade(task="shop.charge", to="2026.12", function=same).is_for(release) is is_for


def test_upgrades_are_kept_in_the_order_of_their_releases(app):
    functions = functions_of(app)
    for to in ("2026.12", "2026.9", "2027.1", "2026.12"):
        functions.add_upgrade(Upgrade(task="shop.charge", to=to, function=same))
    assert [one.to for one in functions.upgrades["shop.charge"]] == ["2026.9", "2026.12", "2027.1"]
    assert functions_of(app) is functions
