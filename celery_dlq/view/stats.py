"""Further reports, for people and as records: closed letters that are kept, messages of killed workers, and
exception types about which no rule decides."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from celery_dlq.classify import WITHOUT_A_RULE
from celery_dlq.model.letter import Explanation
from celery_dlq.model.states import Verdict
from celery_dlq.model.worker import Lost, RecorderReport, ReportKind
from celery_dlq.recorder.files import Standing
from celery_dlq.store.base import TypeCount
from celery_dlq.store.keeping import Ages, CheckReport, Holding, Keeping, Pile, RoundReport
from celery_dlq.view.fields import as_record, plain
from celery_dlq.view.operations import named_values
from celery_dlq.view.text import Fact as Fact
from celery_dlq.view.text import byte_size, counted
from celery_dlq.view.times import age_names, duration

if TYPE_CHECKING:
    from celery_dlq.store import Store

_MEANINGS: Mapping[ReportKind, str] = {
    ReportKind.STUCK: "cannot be recovered",
    ReportKind.WAITING: "not recovered yet",
    ReportKind.UNCOVERED: "run without a copy",
}


@dataclass(frozen=True)
class NamedPile:
    """Closed letters of one age."""

    name: str
    pile: Pile


def letters_of(holding: Holding) -> str:
    """Which closed letters these are."""
    if holding.where is None:
        return "all others"
    return named_values(holding.where.to_dict()) or "every closed letter"


def age_of(holding: Holding) -> str:
    """For how long they are kept."""
    return "ever" if holding.age is None else f"{holding.age.total_seconds() / 86_400:g} d"


def named_ages(ages: Ages) -> list[NamedPile]:
    """Closed letters by the name of their age, such as ``under 7d``; without empty ages."""
    names = age_names({bound: pile.letters for bound, pile in ages.items()})
    return [
        NamedPile(name, pile)
        for name, pile in zip(names, ages.values(), strict=True)
        if pile.letters
    ]


def retention_facts(found: RoundReport, now: datetime) -> Sequence[Fact]:
    """The results of the last round of retention."""
    kept, lag = found.kept, found.lag(now)
    return [
        ("Last round", found.ended_at),
        ("Removed", counted(found.removed, "letter")),
        ("Closed", said_pile(kept.every)),
        ("Expire in a day", counted(kept.within_day, "letter")),
        ("Expire in a week", counted(kept.within_week, "letter")),
        ("Next expires", None if lag else found.next_expires_at),
        ("Overdue", duration(lag.total_seconds()) if lag else None),
    ]


def archive_facts(found: Keeping) -> Sequence[Fact]:
    """The contents of the archive, and when it was last written and checked; empty without segments."""
    totals = found.archive
    if not totals.segments:
        return []
    letters = said_pile(Pile(letters=totals.letters, size=totals.size))
    checked = "never" if found.check is None else found.check.checked_at
    return [
        ("Archived", f"{letters} in {counted(totals.segments, 'segment')}"),
        ("Last segment", totals.last_at),
        ("Last check", checked),
        ("Problems", _problems(found.check)),
    ]


def said_pile(pile: Pile) -> str:
    """The number of letters and their size."""
    return f"{counted(pile.letters, 'letter')}, {byte_size(pile.size)}"


def _problems(check: CheckReport | None) -> str | None:
    if check is None or not check.damaged + check.harmless:
        return None
    return f"{check.damaged:,} that lose letters, {check.harmless:,} other"


def by_age(
    ages: Mapping[float, Any], record: Callable[[Any], dict[str, int]]
) -> list[dict[str, Any]]:
    """Numbers of letters by age, each as its record. ``up_to_s`` is null for ages above the highest bound."""
    return [
        {"up_to_s": bound if math.isfinite(bound) else None, **record(one)}
        for bound, one in ages.items()
    ]


def keeping_record(found: Keeping, now: datetime) -> dict[str, Any]:
    """The closed letters that are kept: ``retention`` is null before the first round, ``verified_at`` before
    the first check."""
    totals, check = found.archive, found.check
    return {
        "retention": None if found.round is None else _round_record(found.round, now),
        "archive": {
            "segments": totals.segments,
            "letters": totals.letters,
            "bytes": totals.size,
            "last_segment_at": plain(totals.last_at),
            "verified_at": check and plain(check.checked_at),
            "damaged": check and check.damaged,
        },
    }


def _round_record(found: RoundReport, now: datetime) -> dict[str, Any]:
    kept = found.kept
    return {
        **as_record(found, ("ended_at", "removed")),
        **pile_record(kept.every),
        "ages": by_age(kept.ages, pile_record),
        **as_record(kept, ("within_day", "within_week")),
        "next_expires_at": plain(found.next_expires_at),
        "lag_s": found.lag(now).total_seconds(),
        "entries": [*map(holding_record, found.holdings)],
    }


def pile_record(pile: Pile) -> dict[str, int]:
    """Letters and their bytes."""
    return {"letters": pile.letters, "bytes": pile.size}


def holding_record(holding: Holding) -> dict[str, Any]:
    """The closed letters of one entry of ``dlq_retention``; ``filter`` is null for those of none."""
    kept = holding.kept
    return {
        "filter": plain(holding.where),
        "keep_s": None if holding.age is None else holding.age.total_seconds(),
        **pile_record(kept.every),
        "expired": kept.expired.letters,
        "expired_bytes": kept.expired.size,
        **as_record(kept, ("within_day", "within_week", "oldest_closed_at")),
    }


@dataclass(frozen=True, kw_only=True)
class Losses:
    """The losses on all machines that the store knows, and the messages in the files of this one."""

    lost: Lost
    #: None if the files cannot be read.
    here: Standing | None


def losses_of(queue: Any) -> Losses:
    """The losses that the dead-letter queue ``queue`` knows now.

    :raises StoreError: the store failed.
    """
    lost = queue.store.recorder_reports.look(queue.store.now())
    return Losses(lost=lost, here=queue.recorder.standing())


def lost_facts(found: Losses) -> Sequence[Fact]:
    """Lost letters, and messages that wait in the files of this machine; empty if nothing is
    lost and nothing waits."""
    lost, here = found.lost, found.here
    facts: list[Fact] = []
    if lost.open or lost.arrived:
        last_day = f"{lost.arrived:,} in the last 24 h"
        facts.append(("Lost", f"{counted(lost.open, 'open letter')}, {last_day}"))
    if here is None:
        facts.append(("Files here", "cannot be read"))
        return facts
    if here.unrecovered:
        facts.append(("Wait here", _waiting_here(here)))
        facts.append(("Oldest here", here.oldest_at))
    if here.uncounted:
        facts.append(("Not counted here", counted(here.uncounted, "directory", "directories")))
    return facts


def messages_of(report: RecorderReport) -> str:
    """The messages that a report is about; empty if they cannot be counted."""
    return counted(report.messages, "message") if report.messages else ""


def said_why(report: RecorderReport) -> str:
    """The trouble that a report is about, and its cause."""
    return f"{_MEANINGS[report.kind]}: {report.why}"


def lost_record(found: Losses) -> dict[str, Any]:
    """The losses as a record: ``here`` is null if the files of this machine cannot be read."""
    lost, here = found.lost, found.here
    return {
        "lost_open": lost.open,
        "lost_arrived_24h": lost.arrived,
        "here": here and as_record(here),
        "reports": [
            {
                "kind": one.kind.value,
                "directory": None if one.kind is ReportKind.UNCOVERED else one.about,
                **as_record(one, ("worker", "host"), messages=one.messages or None),
                **as_record(one, ("since", "why", "seen_at")),
            }
            for one in lost.reports
        ],
    }


def _waiting_here(here: Standing) -> str:
    again = here.unrecovered - here.forgotten
    text = counted(here.unrecovered, "message")
    return f"{text}, of which the broker may deliver {again:,} again" if again else text


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
