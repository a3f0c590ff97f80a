"""Whatever an exception looks like: a decision comes back, quickly, and never an error."""

import math
from datetime import timedelta
from unittest.mock import MagicMock

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from celery_dlq.classify import Classifier, Decision, Rule
from celery_dlq.classify.builtin.known import TABLE
from celery_dlq.model.states import Verdict

DEFAULT = Classifier()


class Detonation(BaseException):
    """Not an Exception, so that guards against those are not enough."""


class Bomb:
    """Raises at every touch, once it is armed: Hypothesis itself looks at what it drew."""

    armed = False

    def __init__(self, error):
        object.__setattr__(self, "_error", error)

    def __getattribute__(self, name):
        if Bomb.armed:
            raise object.__getattribute__(self, "_error")
        return object.__getattribute__(self, name)

    def _touched(self, *args):
        if Bomb.armed:
            raise object.__getattribute__(self, "_error")
        return NotImplemented

    __bool__ = __str__ = __eq__ = __iter__ = __len__ = __getitem__ = __call__ = _touched
    __hash__ = None


def judge(exc, classifier=DEFAULT):
    Bomb.armed = True
    try:
        return classifier.decide(exc)
    finally:
        Bomb.armed = False


class Bag:
    def __init__(self, attributes):
        self.__dict__.update(attributes)


_ATTRIBUTES = (
    "response status_code http_status status response_code code sqlstate pgcode errno orig reason "
    "original_exception cause os_error headers retry_after exceptions returncode smtp_code recipients "
    "connection_invalidated sqlite_errorcode args __cause__ __context__ __suppress_context__"
)
NAMES = _ATTRIBUTES.split()

BASES = (
    Exception, OSError, ValueError, RuntimeError, ConnectionError, KeyboardInterrupt, UnicodeError,
)  # fmt: skip

LISTED = sorted(name for row in TABLE.rows for name in row.names)

scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(300, 599),
    st.just(10**5000),
    st.floats(),
    st.text(max_size=20),
    st.sampled_from(["40001", "23505", "503", "503 x", "Sat, 21 Nov 2026 12:00:45 GMT"]),
    st.binary(max_size=8),
    st.timedeltas(),
    st.datetimes(),
    st.just(timedelta.max),
)
hostile = st.sampled_from([Detonation(), ValueError("x"), AttributeError("x"), RecursionError()])
odd = st.one_of(hostile.map(Bomb), st.builds(MagicMock), st.just(...), st.just(len))
containers = st.one_of(
    st.dictionaries(st.sampled_from(["Retry-After", b"retry-after", 1]), scalars, max_size=3),
    st.lists(st.tuples(scalars, scalars), max_size=3),
    st.tuples(scalars, scalars),
)


NOTHING = st.nothing()


@st.composite
def exceptions(draw, inner=NOTHING):
    """An exception of some type, with some attributes, some of which may be exceptions."""
    values = st.one_of(scalars, odd, containers, inner)
    carried = st.builds(Bag, st.dictionaries(st.sampled_from(NAMES[:16]), values, max_size=4))
    attributes = draw(
        st.dictionaries(st.sampled_from(NAMES), st.one_of(values, carried), max_size=6)
    )
    module, _, name = draw(st.sampled_from([*LISTED, "shop.errors.AppError"])).rpartition(".")
    base = draw(st.sampled_from(BASES))
    kind = type(name, (base,), {"__module__": module})
    if draw(st.booleans()):
        members = {
            key: property(lambda self, value=value: value) for key, value in attributes.items()
        }
        kind = type(name, (base,), {"__module__": module, **members})
        attributes = {}
    exc = kind() if base is UnicodeError else kind(*draw(st.lists(values, max_size=3)))
    for key, value in attributes.items():
        try:
            setattr(exc, key, value)
        except (TypeError, AttributeError, ValueError):
            continue  # Python itself forbids this value here
    return exc


# Trees take a while to draw on a busy machine.
UNHURRIED = settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)

trees = st.recursive(exceptions(), lambda inner: exceptions(inner), max_leaves=6)


def check(decision):
    assert isinstance(decision, Decision)
    assert isinstance(decision.verdict, Verdict)
    assert decision.rule
    assert "classification failed" not in decision.evidence
    wait = decision.retry_after
    assert wait is None or (wait >= 0 and math.isfinite(wait))
    assert wait is None or decision.verdict is Verdict.TRANSIENT
    explanation = decision.explanation()
    for text in (explanation.rule, explanation.evidence, explanation.path):
        assert len(text.encode("utf-8")) <= 4 * 500
        assert "\x00" not in text


@UNHURRIED
@given(trees)
def test_decide_never_raises(exc):
    check(judge(exc))


@UNHURRIED
@given(trees, st.booleans())
def test_nor_does_it_with_rules_of_the_user(exc, answer):
    rules = (
        Rule("shop.errors.*", "transient", when=lambda exc: answer),
        Rule(Exception, "terminal", status=(429, 503)),
        Rule("OSError", "transient", retry_after=3),
    )
    check(judge(exc, Classifier(rules)))


@UNHURRIED
@given(trees)
def test_asking_twice_gives_the_same_answer(exc):
    first, second = judge(exc), judge(exc)
    assert (first.verdict, first.rule, first.evidence) == (
        second.verdict,
        second.rule,
        second.evidence,
    )


@UNHURRIED
@given(st.lists(exceptions(), min_size=2, max_size=6))
def test_any_knot_of_causes_ends(knot):
    for position, exc in enumerate(knot):
        try:
            exc.__cause__ = knot[(position + 1) % len(knot)]
            exc.__context__ = knot[(position * 2 + 1) % len(knot)]
        except (TypeError, AttributeError):
            continue
    check(judge(knot[0]))
