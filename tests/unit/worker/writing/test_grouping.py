import threading

import pytest
from celery import Celery

from celery_dlq import DeadLetterQueue, FingerprintInput
from celery_dlq.errors import SettingsError
from celery_dlq.model.fingerprint import fingerprint, own_fingerprint
from celery_dlq.worker.writing import grouping
from celery_dlq.worker.writing.grouping import Grouping

FAILURE = FingerprintInput(
    task="shop.charge", exception_type="ValueError", frames=("shop:charge",), message="order 17"
)
BUILT_IN = fingerprint(FAILURE)


@pytest.fixture(autouse=True)
def patience(monkeypatch):
    """A busy machine does not count as a recipe that hangs."""
    for name in ("PATIENCE_S", "DECISION_S"):
        monkeypatch.setattr(f"celery_dlq.classify.guarded.{name}", 60.0)


def by_task(failure):
    return failure.task


def raises(failure):
    raise SystemExit(f"no {failure.task}")


def without_frames(failure):
    return failure.task, failure.exception_type, failure.normalised_message


class Recipe:
    def __call__(self, failure):
        return None


def test_without_a_recipe_the_built_in_one_is_used(caplog):
    assert Grouping().fingerprint(FAILURE) == BUILT_IN
    assert Grouping().recipe == ""
    assert not caplog.text


@pytest.mark.parametrize(
    ("recipe", "expected"),
    [
        (by_task, own_fingerprint(["shop.charge"])),
        (without_frames, own_fingerprint(["shop.charge", "ValueError", "order <n>"])),
        (lambda failure: list(failure.parts), own_fingerprint(FAILURE.parts)),
        (Recipe(), BUILT_IN),
    ],
)
def test_a_recipe_names_the_group(recipe, expected, caplog):
    found = Grouping(recipe)
    assert found.fingerprint(FAILURE) == expected
    assert found.recipe.startswith(f"{__name__}.")
    assert not caplog.text


@pytest.mark.parametrize(
    ("recipe", "problem"),
    [
        (raises, "raised SystemExit: no shop.charge"),
        (lambda _: 7, "returned int, not a string, a list of strings, or None"),
        (lambda _: ["a", 7], "returned list, not a string"),
        (lambda _: {"a"}, "returned set, not a string"),
        (lambda _: b"a", "returned bytes, not a string"),
        (lambda _: "", "returned no text"),
        (lambda _: [], "returned no text"),
    ],
)
def test_a_recipe_that_fails_is_logged_once_and_replaced(recipe, problem, caplog):
    found = Grouping(recipe)
    assert [found.fingerprint(FAILURE) for _ in range(3)] == [BUILT_IN] * 3
    assert caplog.text.count(problem) == 1
    assert found.ask(FAILURE).problem.startswith(problem)


def test_a_recipe_that_hangs_is_left_behind(monkeypatch):
    end = threading.Event()
    monkeypatch.setattr("celery_dlq.classify.guarded.PATIENCE_S", 0.01)
    found = Grouping(lambda _: "late" if end.wait() else "")
    try:
        assert found.ask(FAILURE) == ("", f"took longer than {grouping.PATIENCE_S} s")
    finally:
        end.set()
        # While it runs, no other recipe is called.
        for thread in threading.enumerate():
            if thread.name == "celery-dlq-probe":
                thread.join(60)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("no.such.recipe", "'no.such.recipe' cannot be imported: ModuleNotFoundError"),
        ("math.pi", "'math.pi' cannot be called; give a function."),
        (Recipe, "is a class; give an instance of it."),
    ],
)
def test_a_recipe_that_cannot_be_used_is_an_error(given, said):
    app = Celery("shop", set_as_current=False)
    app.conf.dlq_fingerprint = given
    with pytest.raises(SettingsError, match="dlq_fingerprint: ") as raised:
        DeadLetterQueue(app).grouping  # noqa: B018
    assert said in str(raised.value)
    assert "settings" in str(raised.value)


def test_a_recipe_by_its_name():
    app = Celery("shop", set_as_current=False)
    app.conf.dlq_fingerprint = "string.capwords"
    assert DeadLetterQueue(app).grouping.recipe == "string.capwords"
