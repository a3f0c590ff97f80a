import logging
import re
import sys
import types

import pytest

from celery_dlq.classify import Classifier, Rule, decide, misnamed, rules_for
from celery_dlq.classify.table import Schedule
from celery_dlq.errors import SettingsError
from celery_dlq.model.states import Verdict
from celery_dlq.settings import Settings

TRANSIENT, TERMINAL = Verdict.TRANSIENT, Verdict.TERMINAL


class Flaky(Exception):
    def __init__(self, *args, **attributes):
        super().__init__(*args)
        self.__dict__.update(attributes)


class VeryFlaky(Flaky):
    pass


FLAKY = f"{__name__}.Flaky"


def judge(rule, exc):
    decision = Classifier((rule,)).decide(exc)
    return decision.verdict, decision.rule


@pytest.mark.parametrize(
    "exceptions",
    [
        Flaky,
        FLAKY,
        (KeyError, Flaky),
        [FLAKY, "no.such.Type"],
        {Flaky},
        f"{__name__}.*",
        f"{__name__.partition('.')[0]}.*",
    ],
)
def test_exceptions_are_classes_or_names_and_cover_subclasses(exceptions):
    rule = Rule(exceptions, "transient", name="mine")
    assert judge(rule, Flaky()) == (TRANSIENT, "mine")
    assert judge(rule, VeryFlaky()) == (TRANSIENT, "mine")
    assert judge(rule, RuntimeError()) == (TERMINAL, "default")


def test_the_last_part_of_a_name_is_not_enough():
    assert judge(Rule("other.module.Flaky", "transient"), Flaky()) == (TERMINAL, "default")
    assert judge(Rule(f"x{FLAKY}", "transient"), Flaky()) == (TERMINAL, "default")
    assert judge(Rule(f"{__name__[:-1]}.*", "transient"), Flaky()) == (TERMINAL, "default")


def test_a_name_without_a_dot_is_a_builtin():
    assert judge(Rule("LookupError", "transient", name="mine"), KeyError("x")) == (
        TRANSIENT,
        "mine",
    )
    assert judge(Rule("OSError", "terminal", name="mine"), ConnectionError()) == (TERMINAL, "mine")


def test_a_name_may_be_the_one_it_is_imported_by(monkeypatch):
    facade = types.ModuleType("shop_facade")
    facade.Flaky = Flaky
    monkeypatch.setitem(sys.modules, "shop_facade", facade)
    assert judge(Rule("shop_facade.Flaky", "transient", name="mine"), VeryFlaky()) == (
        TRANSIENT,
        "mine",
    )


def test_matching_by_name_imports_nothing(monkeypatch):
    class Lazy(types.ModuleType):
        def __getattribute__(self, name):
            raise AssertionError(f"{name} was read from a lazy module")

    monkeypatch.setitem(sys.modules, "lazy_package", Lazy("lazy_package"))
    monkeypatch.setitem(sys.modules, "odd_package", 7)
    before = set(sys.modules)
    rule = Rule(["lazy_package.Flaky", "odd_package.Flaky", "xml.sax.SAXException"], "transient")
    assert judge(rule, Flaky()) == (TERMINAL, "default")
    assert set(sys.modules) == before


def test_virtual_subclasses_are_not_meant():
    class Answering(type):
        def __instancecheck__(cls, instance):
            return True

        def __subclasscheck__(cls, subclass):
            return True

    class Anything(Exception, metaclass=Answering):
        pass

    assert judge(Rule(Anything, "transient"), KeyError("x")) == (TERMINAL, "python.error")


def test_user_rules_come_before_the_built_in_ones():
    assert decide(KeyError("x")).verdict is TERMINAL
    assert judge(Rule(KeyError, "transient", name="mine"), KeyError("x")) == (TRANSIENT, "mine")
    assert judge(Rule(OSError, "terminal", name="mine"), TimeoutError()) == (TERMINAL, "mine")


def test_rules_are_asked_in_order():
    first, second = Rule(Flaky, "transient", name="1"), Rule(Exception, "terminal", name="2")
    assert Classifier((first, second)).decide(Flaky()).rule == "1"
    assert Classifier((second, first)).decide(Flaky()).rule == "2"
    assert Classifier((second,)).with_rules(first).decide(Flaky()).rule == "1"


def test_with_rules_leaves_the_classifier_as_it_was():
    classifier = Classifier()
    more = classifier.with_rules(Rule(Flaky, "transient"))
    assert classifier.decide(Flaky()).verdict is TERMINAL
    assert more.decide(Flaky()).verdict is TRANSIENT
    with pytest.raises(AttributeError):
        classifier.rules = ()


def test_the_status_condition():
    rule = Rule(Flaky, "transient", name="mine", status=(500, 409))
    assert judge(rule, Flaky(status_code=409)) == (TRANSIENT, "mine")
    assert judge(rule, Flaky(status_code=404)) == (TERMINAL, "http.status")
    assert judge(rule, Flaky()) == (TERMINAL, "default")
    evidence = Classifier((rule,)).decide(Flaky(status_code=500)).evidence
    assert evidence == f"type={FLAKY}, status=500 from status_code"


def test_the_predicate():
    rule = Rule(Flaky, "transient", name="mine", when=lambda exc: exc.args == ("soon",))
    assert judge(rule, Flaky("soon")) == (TRANSIENT, "mine")
    assert judge(rule, Flaky("never")) == (TERMINAL, "default")


@pytest.mark.parametrize("error", [ValueError("bug"), SystemExit(3)])
def test_a_predicate_that_raises_does_not_match_and_is_logged(error, caplog):
    def broken(exc):
        raise error

    rule = Rule(Flaky, "transient", name="shaky", when=broken)
    with caplog.at_level(logging.WARNING):
        assert judge(rule, Flaky()) == (TERMINAL, "default")
    assert "'shaky' raised" in caplog.text
    assert type(error).__name__ in caplog.text


def test_a_predicate_whose_answer_has_no_truth_value_does_not_match():
    class Vague:
        def __bool__(self):
            raise ValueError("ambiguous")

    assert judge(Rule(Flaky, "transient", when=lambda exc: Vague()), Flaky()) == (
        TERMINAL,
        "default",
    )


def test_the_fixed_wait_yields_to_what_the_exception_says():
    classifier = Classifier((Rule(Flaky, "transient", retry_after=60),))
    assert classifier.decide(Flaky()).retry_after == 60.0
    assert classifier.decide(Flaky(retry_after=5)).retry_after == 5.0
    assert classifier.decide(Flaky()).throttled is False
    assert classifier.decide(Flaky(retry_after=5)).throttled is True


def test_a_rule_on_a_cause_decides_below_a_wrapper():
    outer = RuntimeError("import failed")
    outer.__cause__ = VeryFlaky()
    assert judge(Rule(Flaky, "transient", name="mine"), outer) == (TRANSIENT, "mine")


def test_names_of_rules_default_to_their_exceptions():
    assert Rule((KeyError, "shop.Late"), "transient").name == "rule(KeyError, shop.Late)"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (((), "transient"), "at least one exception"),
        ((int, "transient"), "is not an exception"),
        ((7, "transient"), "is not an exception"),
        (("Timeout", "transient"), "is not an exception"),
        (("", "transient"), "is not an exception"),
        (((KeyError, None), "transient"), "is not an exception"),
        ((KeyError, "retry"), "is not a verdict"),
    ],
)
def test_wrong_arguments_are_refused(arguments, message):
    with pytest.raises(SettingsError, match=message):
        Rule(*arguments)


@pytest.mark.parametrize(
    "options",
    [
        {"when": "soon"},
        {"status": "503"},
        {"status": ()},
        {"status": 200},
        {"status": (503, True)},
        {"retry_after": -1},
        {"retry_after": float("nan")},
        {"retry_after": "30"},
        {"status": 5.5},
        {"sqlstate": 40001},
        {"sqlstate": "4000"},
        {"sqlstate": "40p01"},
        {"sqlstate": ()},
        {"sqlstate": ("40001", None)},
        {"matching": "("},
        {"matching": "a{99999999999999999999}"},
        {"matching": b"busy"},
        {"matching": re.compile(b"busy")},
        {"matching": 7},
        {"max_attempts": 0},
        {"max_attempts": 2.0},
        {"max_attempts": True},
        {"max_attempts": 10_001},
        {"retry_backoff": -1},
        {"retry_backoff": True},
        {"retry_backoff": 86_401},
        {"retry_backoff_max": float("inf")},
        {"retry_backoff_max": "30"},
        {"retry_backoff": 3, "retry_backoff_max": 2},
    ],
)
def test_wrong_options_are_refused(options):
    with pytest.raises(SettingsError, match=f"dlq_rules.*{next(iter(options))}"):
        Rule(KeyError, "transient", **options)


@pytest.mark.parametrize("option", ["retry_after", "max_attempts", "retry_backoff_max"])
def test_a_terminal_rule_has_no_schedule(option):
    with pytest.raises(SettingsError, match=f"{option}=3 in a terminal rule"):
        Rule(KeyError, "terminal", **{option: 3})


@pytest.mark.parametrize("anything", [Exception, "Exception", (KeyError, BaseException)])
def test_a_pattern_is_bound_to_a_type(anything):
    with pytest.raises(SettingsError, match="needs a type"):
        Rule(anything, "transient", matching="503")


@pytest.mark.parametrize(
    "name", ["shop.", ".Busy", "shop..Busy", "shop.busy!", "shop. Busy", ".*", "a b.*"]
)
def test_a_name_that_none_can_have_is_refused(name):
    with pytest.raises(SettingsError, match="is not an exception"):
        Rule(name, "transient")


def test_a_pattern_is_searched_in_the_message():
    rule = Rule(Flaky, "transient", name="mine", matching=re.compile("try (again|later)", re.I))
    assert judge(rule, VeryFlaky("Please TRY LATER")) == (TRANSIENT, "mine")
    assert judge(rule, Flaky("go away")) == (TERMINAL, "default")
    assert judge(rule, RuntimeError("try again")) == (TERMINAL, "default")
    assert (
        "message matches 'try (again|later)'"
        in Classifier((rule,)).decide(Flaky("try again")).evidence
    )


def test_a_message_that_cannot_be_had_matches_nothing():
    class Mute(Flaky):
        def __str__(self):
            raise SystemExit(1)

    assert judge(Rule(Flaky, "transient", matching="busy"), Mute()) == (TERMINAL, "default")


@pytest.mark.parametrize("given", ["40001", "40", ("57", "40")])
def test_an_sqlstate_is_that_of_the_error_or_of_the_drivers_below_it(given):
    rule = Rule(Flaky, "terminal", name="mine", sqlstate=given)
    assert judge(rule, Flaky(sqlstate="40001")) == (TERMINAL, "mine")
    decision = Classifier((rule,)).decide(Flaky(orig=Flaky(pgcode="40001")))
    assert decision.evidence.endswith("sqlstate=40001 from orig.pgcode")
    assert judge(rule, Flaky(sqlstate="23505"))[1] != "mine"
    assert judge(rule, Flaky(sqlstate=40001))[1] != "mine"
    assert judge(rule, Flaky()) == (TERMINAL, "default")


def test_a_rule_brings_its_own_attempts_and_waits():
    own = Rule(Flaky, "transient", max_attempts=9, retry_backoff=2, retry_backoff_max=60)
    assert Classifier((own,)).decide(Flaky()).schedule == Schedule(9, 2.0, 60.0)
    assert Classifier((Rule(Flaky, "transient"),)).decide(Flaky()).schedule is None


def test_conditions_in_addition_to_the_type_are_shown():
    rule = Rule(
        Flaky, "transient", status=(503, 500), sqlstate="40", matching="busy", when=callable
    )
    assert rule.condition() == (
        "a message matching 'busy' and HTTP status 500, 503 and SQLSTATE 40 and its predicate"
    )
    assert Rule(Flaky, "transient", matching="busy").condition_beyond_text() == ""


def test_rules_are_values():
    assert Rule(KeyError, "transient", status=503) == Rule(KeyError, TRANSIENT, status=[503])
    assert Rule(KeyError, "transient") == Rule([KeyError], TRANSIENT)
    with pytest.raises(AttributeError):
        Rule(KeyError, "transient").name = "x"


def test_rules_for_a_tasks_own_lists():
    assert rules_for((), TRANSIENT, "task.autoretry_for") == ()
    (rule,) = rules_for((Flaky, KeyError), TRANSIENT, "task.autoretry_for")
    decision = Classifier((rule,)).decide(VeryFlaky())
    assert (decision.verdict, decision.rule) == (TRANSIENT, "task.autoretry_for")
    assert decision.evidence == f"type={FLAKY}"
    (single,) = rules_for(Flaky, TERMINAL, "task.throws")
    assert single.exceptions == (Flaky,)


def test_settings_become_rules_terminal_first():
    settings = Settings.from_values(
        {
            "terminal": [VeryFlaky],
            "transient": [FLAKY, "KeyError"],
            "rules": [Rule(Exception, "transient", name="last resort")],
        }
    )
    classifier = Classifier.from_settings(settings)
    assert classifier.decide(VeryFlaky()).rule == "dlq_terminal"
    assert classifier.decide(Flaky()).rule == "dlq_transient"
    assert classifier.decide(KeyError("x")).verdict is TRANSIENT
    assert classifier.decide(ValueError("x")).rule == "last resort"


def test_settings_without_rules_make_a_plain_classifier():
    assert Classifier.from_settings(Settings()) == Classifier()


def test_settings_that_hold_no_rule_are_refused():
    class Impostor:
        verdict = "transient"

    with pytest.raises(SettingsError, match="dlq_rules"):
        Classifier.from_settings(Settings.from_values({"rules": [Impostor()]}))
    with pytest.raises(SettingsError, match="dlq_transient: 'Tiemout' is not an exception"):
        Classifier.from_settings(Settings.from_values({"transient": ["Tiemout"]}))


# -- names that can be imported ---------------------------------------------------------------------


@pytest.fixture
def shop(tmp_path, monkeypatch):
    package = tmp_path / "shop_of_names"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "errors.py").write_text(
        "class Busy(Exception):\n    class Very(Exception): pass\nLIMIT = 3\n"
    )
    (package / "broken.py").write_text("1 / 0\n")
    (package / "needy.py").write_text("import no_such_library_at_all\n")
    monkeypatch.syspath_prepend(tmp_path)
    yield "shop_of_names"
    for name in [name for name in sys.modules if name.startswith("shop_of_names")]:
        del sys.modules[name]


@pytest.mark.parametrize("name", ["errors.Busy", "errors.Busy.Very", "errors.*", "*"])
def test_names_that_can_be_imported_are_right(shop, name):
    assert list(misnamed([Rule(f"{shop}.{name}", "transient")])) == []
    assert f"{shop}.errors" in sys.modules or name == "*"


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("errors.Bussy", "not an exception class that can be imported"),
        ("errors.LIMIT", "not an exception class that can be imported"),
        ("errors.Busy.Not", "not an exception class that can be imported"),
        ("erors.Busy", "not an exception class that can be imported"),
        ("erors.*", "does not name an installed module"),
        ("broken.Busy", "ZeroDivisionError"),
        ("needy.Busy", "Install the missing package"),
        ("needy.*", "Install the missing package"),
    ],
)
def test_other_names_are_reported_with_the_name_of_the_setting(shop, name, problem):
    spec = f"{shop}.{name}"
    (said,) = misnamed(rules_for(["KeyError", spec], "transient", "dlq_transient"))
    assert said.startswith("dlq_transient: ")
    assert problem in said
    (said,) = misnamed([Rule((KeyError, spec), "terminal", name="mine")])
    assert said.startswith("dlq_rules, mine: ")
