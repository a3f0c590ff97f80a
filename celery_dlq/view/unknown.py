"""Exception types about which no rule decides, and the settings that would decide."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from celery_dlq.classify import WITHOUT_A_RULE
from celery_dlq.model.letter import Explanation
from celery_dlq.model.states import Verdict
from celery_dlq.store.base import TypeCount
from celery_dlq.view.fields import as_record
from celery_dlq.view.text import counted

if TYPE_CHECKING:
    from celery_dlq.store import Store

#: The most types that are read.
_MOST = 100

_SETTINGS = ("dlq_transient", "dlq_terminal")

# The attributes that the condition "status" of a rule reads.
_STATUS = "(?:status_code|http_status|response_code|status|code)"

#: The caution that belongs to :func:`settings_of`.
CAUTION = (
    "Check each one: a redrive also succeeds because the cause was fixed. Then paste the settings, restart "
    "the workers, and run dlq reclassify for the stored letters."
)


def unknown_types(store: Store) -> Sequence[TypeCount]:
    """The exception types about which no rule decided, the most letters first; at most 100."""
    return store.counts.by_type(WITHOUT_A_RULE, limit=_MOST)


def redrives_of(one: TypeCount) -> str:
    """How its redrives ended; empty if none has."""
    ended = one.succeeded + one.failed
    return f"{one.succeeded:,} of {counted(ended, 'redrive')} succeeded" if ended else ""


def setting_of(one: TypeCount) -> str:
    """The setting in which to name the type, as its redrives suggest; empty if none has ended."""
    # A builtin, such as Exception, is also the base of classes that other rules know.
    parts = one.exception_type.split(".")
    if len(parts) < 2 or not all(map(str.isidentifier, parts)) or not redrives_of(one):
        return ""
    return _SETTINGS[one.succeeded < one.failed]


def change_of(decided: Explanation, exception_type: str) -> str:
    """The setting that would change a verdict that no rule gave, as Python code; empty if a rule gave it."""
    name = (decided.path.rpartition(" <- ")[2] or exception_type).removeprefix("builtins.")
    is_a_name = all(map(str.isidentifier, name.replace(".<locals>.", ".").split(".")))
    if decided.rule not in WITHOUT_A_RULE or not is_a_name:
        return ""
    to = Verdict.TERMINAL if decided.verdict is Verdict.TRANSIENT else Verdict.TRANSIENT
    if "." in name:
        return f'dlq_{to.value} = ["{name}"]'
    # Classes of Python are the bases of others that rules know, so their name alone must not decide.
    status = re.search(rf"\b{name} carries [^;]*?{_STATUS}=([3-5]\d\d)\b", decided.evidence)
    condition = f"status={status[1]}" if status else 'matching=r"its message"'
    if not status and name in ("Exception", "BaseException"):
        condition = "when=is_passing"
    return f'dlq_rules = [Rule("{name}", "{to.value}", {condition})]'


def settings_of(types: Sequence[TypeCount]) -> str:
    """The settings that would decide about these types, as Python code; empty if there are none."""
    return "\n".join(line for setting in _SETTINGS for line in _setting(setting, types))


def _setting(setting: str, types: Sequence[TypeCount]) -> Iterator[str]:
    # A type is listed twice if its name decided about some of its letters.
    named = {one.exception_type: one for one in types if setting_of(one) == setting}
    if named:
        yield f"{setting} = ["
        for name, one in named.items():
            yield f'    "{name}",  # {redrives_of(one)}'
        yield "]"


def unknown_record(one: TypeCount) -> dict[str, Any]:
    """A type in a list."""
    return as_record(one, setting=setting_of(one))
