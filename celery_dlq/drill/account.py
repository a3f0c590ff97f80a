"""The account of a drill: how the messages of each scenario ended, and the setting that closes a gap."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from celery_dlq.drill.ground import End
from celery_dlq.model.states import Reason
from celery_dlq.settings import Settings
from celery_dlq.worker.broker_limits import FORGETFUL


class Result(str, Enum):
    """The result of a scenario."""

    OK = "ok"
    #: A message was lost, is not back yet, ran twice, or ended in another way than it should.
    GAP = "gap"
    LEFT_OUT = "left out"
    #: A check of the doctor says that the configuration leaves something open.
    OPEN = "open"


@dataclass(frozen=True, kw_only=True)
class Account:
    """The account of one scenario."""

    scenario: str
    title: str
    result: Result
    sent: int = 0
    done: int = 0
    letters: int = 0
    #: From the first message to the last end.
    seconds: float = 0.0
    #: How the messages ended; for a gap, with the setting that closes it.
    text: str = ""


@dataclass(frozen=True, kw_only=True)
class Facts:
    """What decides which setting closes a gap."""

    conf: Any
    settings: Settings
    #: Of the broker, such as ``redis``.
    driver: str
    #: The name of the pool's class.
    pool: str
    #: How often a worker ended by itself in this scenario.
    ended_alone: int


_Remedy = tuple[Callable[[Facts], Any], str]

_FORKS = ("prefork", "processes", "celery.concurrency.prefork:TaskPool")

_NOT_BACK: _Remedy = (
    lambda facts: facts.driver in ("redis", "sqs") and not facts.settings.restore_unacked,
    "dlq_restore_unacked is off, so messages of a dead worker wait for the visibility timeout; set it to "
    "True",
)
_NOT_RECORDED: _Remedy = (
    lambda facts: not facts.settings.recorder,
    "dlq_recorder is off, so messages that were acknowledged early die with their worker; set it to True, "
    "or task_acks_late to True",
)
_NO_RECONNECT: _Remedy = (
    lambda facts: not facts.conf.broker_connection_retry,
    "broker_connection_retry is off, so the worker ended with its connection; set it to True",
)
_NOT_ATOMIC: _Remedy = (
    lambda facts: facts.driver == "redis",
    "a worker that is killed can lose the message that Redis is giving to it; the doctor's line about taking "
    "says whether Redis refuses to do that in one step, and why",
)
_FORGETS: _Remedy = (
    lambda facts: facts.driver in FORGETFUL,
    "this broker deletes a message when a worker receives it, so what a killed worker had fetched is lost; "
    "use Redis, RabbitMQ or Amazon SQS",
)
_NO_SPOOL: _Remedy = (
    lambda facts: True,
    "the letter was not kept while the store was away; check that workers can write dlq_spool_dir",
)

#: For each scenario, the settings that leave a gap, the likeliest first.
_REMEDIES: Mapping[str, Sequence[_Remedy]] = {
    "recover": (
        (
            lambda facts: facts.settings.max_attempts == 1,
            "dlq_max_attempts is 1, so nothing is retried; raise it",
        ),
    ),
    "kill-process": (_NOT_BACK,),
    "kill-worker": (_NOT_RECORDED, _FORGETS, _NOT_BACK, _NOT_ATOMIC),
    "poison": (_NOT_BACK,),
    "time-limit": (
        (
            lambda facts: facts.pool not in _FORKS,
            "the pool {facts.pool} cannot end a task that exceeds its time limit; use prefork for such tasks",
        ),
    ),
    "store-cut": (_NO_SPOOL,),
    "broker-cut": (_NO_RECONNECT, _NOT_RECORDED, _NOT_BACK),
}  # fmt: skip


def account_of(
    name: str,
    title: str,
    ends: Sequence[End],
    is_right: Callable[[End], bool],
    facts: Facts,
    seconds: float,
) -> Account:
    """The account of a scenario whose messages have ended so."""
    wrong = [end for end in ends if not is_right(end)]
    text = _ended(ends)
    # A pool in the worker's own process ends with a task that kills it.
    left = facts.ended_alone > 0 and name == "broker-cut"
    if left:
        text += "; the worker ended by itself"
    if wrong or left:
        text += f"; {_remedy(name, facts)}"
    return Account(
        scenario=name,
        title=title,
        result=Result.GAP if wrong or left else Result.OK,
        sent=len(ends),
        done=sum(end.is_done for end in ends),
        letters=sum(end.is_letter for end in ends),
        seconds=round(seconds, 1),
        text=text,
    )


def _ended(ends: Sequence[End]) -> str:
    counts = Counter(map(_kind, ends))
    return ", ".join(
        f"{count} {kind if count == 1 else kind.replace('letter', 'letters', 1)}"
        for kind, count in counts.items()
    )


def _kind(end: End) -> str:
    if end.is_done:
        times = {1: "done", 2: "done after a second run"}
        return times.get(end.begun, f"done after {end.begun} runs")
    if end.is_letter and end.reason is not None:
        # "lost" would read as if the message was.
        return f"letter ({'worker killed' if end.reason is Reason.LOST else end.reason.value})"
    if end.state is not None:
        return f"letter that is {end.state.value}"
    return "neither done nor dead" + (", although begun" if end.begun else "")


def _remedy(name: str, facts: Facts) -> str:
    for applies, text in _REMEDIES.get(name, ()):
        if applies(facts):
            return text.format(facts=facts)
    return (
        "no setting explains this; see the log of your workers, and run: celery -A <app> dlq doctor"
    )
