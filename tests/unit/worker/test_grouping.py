import threading
from dataclasses import replace

import pytest
from celery import Celery
from support.factories import letter

from celery_dlq import DeadLetterQueue, FingerprintInput
from celery_dlq.base.redact import Redactor
from celery_dlq.errors import SettingsError
from celery_dlq.model.fingerprint import Grounds, fingerprint, own_fingerprint
from celery_dlq.model.letter import Failure
from celery_dlq.worker import grouping
from celery_dlq.worker.grouping import Grouping

GROUNDS = Grounds(frames=("shop:charge",), lines=("raise ValueError number",))
LETTER = letter(message="order 17", grounds=GROUNDS, fingerprint="")
FAILURE = FingerprintInput(
    task="shop.charge", exception_type="ValueError", frames=GROUNDS.frames, lines=GROUNDS.lines,
    message="order 17",
)  # fmt: skip
BUILT_IN = fingerprint(FAILURE)


def grouping_with(recipe=None):
    return Grouping(Redactor(), recipe)


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


@pytest.mark.parametrize("recipe", [None, by_task, raises, Recipe()])
@pytest.mark.parametrize("needs_message", [False, True])
def test_a_failure_has_the_fingerprint_that_its_letter_will_have(recipe, needs_message):
    grounds = replace(GROUNDS, needs_message=needs_message)
    made = LETTER.with_(grounds=grounds, args=["order"], kwargs={"n": 17})
    failed = Failure(
        reason=made.reason, explanation=made.explanation, exception_type=made.exception_type,
        message=made.message, traceback="", grounds=grounds, failed_at=made.last_failed_at,
        attempts=(), pid=None,
    )  # fmt: skip
    grouping = grouping_with(recipe)
    found = grouping.fingerprint_of("shop.charge", failed, ("order",), {"n": 17})
    assert found == grouping.grouped(made).fingerprint


def test_without_a_recipe_the_built_in_one_is_used(caplog):
    assert grouping_with().grouped(LETTER) == LETTER.with_(fingerprint=BUILT_IN)
    assert grouping_with().recipe == ""
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
    found = grouping_with(recipe)
    after = found.grouped(LETTER)
    assert after.fingerprint == expected
    assert after.grounds.recipe == ("" if expected == BUILT_IN else found.recipe)
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
    found = grouping_with(recipe)
    assert [found.grouped(LETTER).fingerprint for _ in range(3)] == [BUILT_IN] * 3
    assert caplog.text.count(problem) == 1
    assert found.regrouped(LETTER)[1].startswith(problem)


def test_a_recipe_that_hangs_is_left_behind(monkeypatch):
    end = threading.Event()
    monkeypatch.setattr("celery_dlq.classify.guarded.PATIENCE_S", 0.01)
    found = grouping_with(lambda _: "late" if end.wait() else "")
    try:
        assert found.regrouped(LETTER)[1] == f"took longer than {grouping.PATIENCE_S} s"
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


def test_the_words_of_a_message_are_those_that_are_shown_and_not_in_the_arguments():
    words = []
    grouping_with(lambda failure: words.append(failure.words)).grouped(
        letter(
            message="password=hunter2 refused for Ada in Leeds",
            args=[{"name": "Ada"}, "Leeds"],
            grounds=Grounds(needs_message=True),
        )
    )
    assert words == ["password=[redacted] refused for <arg> in <arg>"]


def test_a_recipe_gets_the_new_parts():
    seen = []
    grounds = Grounds(evidence=("status=404",), causes=("KeyError",), lines=("a", "b"))
    grouping_with(seen.append).grouped(letter(grounds=grounds))
    (failure,) = seen
    assert (failure.evidence, failure.causes, failure.lines, failure.words) == (
        ("status=404",), ("KeyError",), ("a", "b"), ""
    )  # fmt: skip


def test_a_fingerprint_says_nothing_about_secrets():
    said = []
    recipe = grouping_with(lambda failure: said.append(failure.message))
    for message in ("no login of 17 with password=hunter2", "no login of 18 with password=other"):
        recipe.grouped(letter(message=message, grounds=Grounds(needs_message=True)))
    assert said == [f"no login of {number} with password=[redacted]" for number in (17, 18)]
