"""The plan of a redrive: what it would do, according to the store's counts and a trial of its letters. A
trial says how a redrive would change each letter, or why it would not send it. Nothing is sent."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from celery_dlq.errors import FilterError, OrdersError, RedriveError
from celery_dlq.model.letter import DeadLetter
from celery_dlq.model.operation import Orders
from celery_dlq.model.states import OPEN_STATES, Reason, State
from celery_dlq.redrive.context import RedriveContext
from celery_dlq.redrive.gate import Gate, why_held
from celery_dlq.redrive.letter.checks import why_no_task
from celery_dlq.redrive.letter.repair import preparation_of
from celery_dlq.store.base import Filter, pages

if TYPE_CHECKING:
    from celery_dlq.store import Store

#: Letters that are listed, or read, at a time.
_PAGE = 500

#: The most letters that are tried for a plan, and the most seconds that it takes.
MOST, PATIENCE_S = 500, 1.0

#: The most letters of a plan that are named one by one.
NAMED_LIMIT = 20

#: The most tasks that an error names.
_TASKS_NAMED = 5

#: The most letters of a plan whose changes are shown.
CHANGES_LIMIT = 5

#: Letters that a redrive takes only by their ids or by this reason, because sending them back unexamined does
#: harm. Each text completes a sentence that begins with a number of letters.
NAMED_ONLY: Mapping[Reason, str] = {
    Reason.UNSTORED: "ran to their end and would run again",
    Reason.LOST: "were running when their worker was killed, and would run again",
    Reason.MALFORMED: "could not be read and would come back",
}


@dataclass(frozen=True, kw_only=True)
class Tried:
    """One letter that was tried, or would not be sent."""

    task_id: str
    task: str
    #: The changes in its message, as lines of a diff; empty for none.
    change: str = ""
    #: Why it would not be sent; None when it would.
    why_not: str | None = None
    #: Why it may fail although it would be sent; empty for no reason.
    doubt: str = ""


@dataclass(kw_only=True)
class Trial:
    """The first letters of a plan, each repaired and checked as it would be before it is sent."""

    #: Letters that would be sent, and letters that would not, by task.
    passed: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    #: The first letters that would not be sent.
    skipped: list[Tried] = field(default_factory=list)
    #: Letters whose messages would change, even if a check refuses them; and the first of these.
    changed: int = 0
    changes: list[Tried] = field(default_factory=list)
    #: Letters that would be sent although they may fail, by the reason; without further rare reasons.
    doubts: Counter[str] = field(default_factory=Counter)
    #: Why it ended early; empty if it did not.
    trouble: str = ""

    @property
    def tried(self) -> int:
        """How many letters were tried."""
        return self.passed.total() + self.refused.total()

    def note(self, one: Tried) -> None:
        """Count one more letter."""
        if one.change:
            self.changed += 1
            if len(self.changes) < CHANGES_LIMIT:
                self.changes.append(one)
        if one.why_not is None:
            self.passed[one.task] += 1
            if one.doubt in self.doubts or (one.doubt and len(self.doubts) < NAMED_LIMIT):
                self.doubts[one.doubt] += 1
            return
        self.refused[one.task] += 1
        if len(self.skipped) < NAMED_LIMIT:
            self.skipped.append(one)


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The expected effects of a redrive. Making a plan changes nothing."""

    #: Letters that the filter finds, including those that another redrive holds.
    matched: int
    #: How many of those would be sent; an upper bound unless ``is_exact``.
    sendable: int
    #: How many letters cannot be sent and stay dead; a lower bound unless ``is_exact``.
    unsendable: int
    #: How many letters were repaired and checked one by one, oldest failure first.
    tried: int
    #: Whether the redrive would take only letters that were tried.
    is_exact: bool
    #: Letters of ``matched`` that another redrive holds, or that were sent already. They are left alone.
    in_flight: int
    #: Letters of ``matched`` that would be sent again although the outcome of an earlier sending is awaited.
    awaited: int
    #: Letters that can be sent, by task; a limit takes the oldest of them.
    by_task: Mapping[str, int]
    #: The first letters that cannot be sent.
    skipped: tuple[Tried, ...]
    #: How many of the letters that were tried have messages that would change; and the first of these.
    changed: int
    changes: tuple[Tried, ...]
    notes: tuple[str, ...]


def make_plan(context: RedriveContext, wanted: Filter, orders: Orders, trial: Trial) -> Plan:
    """Count the letters of ``wanted`` as a redrive would take them.

    :param trial: the results of the first letters.
    """
    store, limit, taken = context.store, orders.pacing.limit, redrivable(wanted)
    # Messages that wait in the store are not letters, and a redrive does not take them.
    asked_for = replace(wanted, states=wanted.states or OPEN_STATES)
    matched, counts = store.counts.letters(asked_for), store.counts.by_task(taken)
    total, to_task = sum(counts.values()), orders.repair.to_task
    refused = {
        task: why
        for task in counts
        if (
            why := why_no_task(context.app, to_task or task)
            or why_held(context.app, "never", task, to_task or task)
        )
    }
    apart = {
        reason: store.counts.letters(replace(taken, reason=reason, without_reasons=frozenset()))
        for reason in sorted(taken.without_reasons)
    }
    number = total if limit is None else min(limit, total)
    by_task, sendable, unsendable = _forecast(counts, refused, number, trial)
    is_again = sendable and State.REDRIVEN in taken.states
    unnamed = {task: why for task, why in refused.items() if task not in trial.refused}
    plan = Plan(
        matched=matched,
        sendable=sendable,
        unsendable=unsendable,
        tried=trial.tried,
        is_exact=trial.tried >= number,
        in_flight=matched - total - sum(apart.values()),
        awaited=store.sendings.count_awaited(taken) if is_again else 0,
        by_task=by_task,
        skipped=(*trial.skipped, *_examples(store, taken, unnamed))[:NAMED_LIMIT],
        changed=trial.changed,
        changes=tuple(trial.changes),
        notes=(),
    )
    said = _notes(plan, apart, limit if number == limit else None, trial)
    gate = Gate(context.app, store, context.settings, context.proposes)
    second = gate.why_second("redrive", number, counts, to_task)
    notes = *failed_before(store, taken), *([f"{second}."] if second else ()), *said
    return replace(plan, notes=notes)


def check_canary(orders: Orders, plan: Plan, reports: Callable[[str], bool]) -> None:
    """Check that the canary can be sent, and that its outcomes will be reported.

    :param reports: whether workers report the outcomes of a task's messages.
    :raises OrdersError: the canary is too large, or a task does not report its outcomes.
    """
    canary = orders.pacing.canary
    if not canary or not plan.sendable:
        return
    if canary > plan.sendable:
        raise OrdersError(
            f"A canary of {canary} is more than the {plan.sendable} letters that would be sent; "
            "make it smaller."
        )
    run = [orders.repair.to_task] if orders.repair.to_task else plan.by_task
    silent = [task for task in run if not reports(task)]
    if silent:
        more = f" and {len(silent) - _TASKS_NAMED} more" if len(silent) > _TASKS_NAMED else ""
        raise OrdersError(
            f"A canary waits for outcomes, and only tasks on DLQTask report them, which "
            f"{', '.join(silent[:_TASKS_NAMED])}{more} are not; leave the canary out, or filter by task."
        )


def _forecast(
    counts: Mapping[str, int], refused: Mapping[str, str], number: int, trial: Trial
) -> tuple[Mapping[str, int], int, int]:
    """The letters that would be sent, by task; how many they are, and how many cannot be sent. For letters
    that were not tried, it is only known whether their task is registered.

    :param counts: letters by task.
    :param refused: tasks whose letters cannot be sent.
    :param number: how many letters the redrive would take, to send or to skip them.
    """
    if trial.tried and trial.tried >= number:
        by_task = dict(sorted(trial.passed.items(), key=lambda item: (-item[1], item[0])))
        return by_task, trial.passed.total(), trial.refused.total()
    left = {task: n - trial.refused[task] for task, n in counts.items()}
    by_task = {task: n for task, n in left.items() if task not in refused and n > 0}
    most = sum(by_task.values())
    return by_task, min(number - trial.refused.total(), most), sum(counts.values()) - most


def dry_run(context: RedriveContext, wanted: Filter, orders: Orders) -> Iterator[Tried]:
    """The letters that a redrive of ``wanted`` would take, oldest failure first, each as it would be
    repaired and checked.

    :raises RepairError: a change is wrong, or cannot be imported.
    :raises RedriveError: the result backend does not answer.
    """
    limit, taken = orders.pacing.limit, redrivable(wanted)
    if limit is None:
        ids = _oldest_first(context.store, taken)
    else:
        ids = context.store.claims.first_ids(taken, limit)
    yield from _tried(context, ids, orders)


def try_first(context: RedriveContext, wanted: Filter, orders: Orders) -> Trial:
    """Try the first letters of a redrive of ``wanted``, for a moment.

    :raises RepairError: a change is wrong, or cannot be imported.
    """
    until, trial = context.clock.monotonic() + PATIENCE_S, Trial()
    limit = min(orders.pacing.limit or MOST, MOST)
    ids = context.store.claims.first_ids(redrivable(wanted), limit)
    try:
        for one in _tried(context, ids, orders):
            trial.note(one)
            if context.clock.monotonic() >= until:
                break
    except RedriveError as error:
        trial.trouble = str(error)
    return trial


def _tried(context: RedriveContext, ids: Sequence[str], orders: Orders) -> Iterator[Tried]:
    now, redactor = context.clock.now(), context.redactor
    preparation = preparation_of(context, orders)
    for letter in _read(context.store, ids):
        made = preparation.prepare(letter, now)
        yield Tried(
            task_id=letter.task_id,
            task=letter.task,
            change=made.change,
            why_not=None if made.why_not is None else redactor.text(made.why_not),
            doubt=redactor.text(made.doubt),
        )


def _read(store: Store, ids: Sequence[str]) -> Iterator[DeadLetter]:
    """The letters with their messages, without those that were deleted in the meantime."""
    done = 0
    while done < len(ids):
        letters, told = store.letters.read(ids[done : done + _PAGE])
        yield from letters
        done += told


def _oldest_first(store: Store, wanted: Filter) -> list[str]:
    found = pages(store.letters.find, wanted, _PAGE)
    return [letter.task_id for page in found for letter in page.letters][::-1]


def redrivable(wanted: Filter) -> Filter:
    """``wanted``, narrowed to the letters that a redrive may take: dead letters, and redriven ones if the
    filter names that state, which means that their outcome is no longer awaited. Letters of the reasons in
    :data:`NAMED_ONLY` are left out unless the filter names them.

    :raises FilterError: it names only states from which a redrive takes no letters.
    """
    states = wanted.states & {State.DEAD, State.REDRIVEN}
    if wanted.states and not states:
        named = ", ".join(sorted(state.value for state in wanted.states))
        raise FilterError(
            f"Letters that are {named} cannot be redriven; only dead or redriven ones can."
        )
    is_named = wanted.ids or wanted.reason
    apart = frozenset[Reason]() if is_named else frozenset(NAMED_ONLY)
    return replace(wanted, states=states or frozenset({State.DEAD}), without_reasons=apart)


def failed_before(store: Store, wanted: Filter) -> Iterator[str]:
    """The warnings that a cause of these letters was redriven, and failed again."""
    for cause, (operation, failed, ended) in store.sendings.last_of_causes().items():
        may_have = failed and cause.startswith(wanted.group or "")
        if may_have and store.counts.letters(replace(wanted, group=cause)):
            some = f"{failed:,} of {ended:,}"
            yield f"Group {cause[:8]}: {some} failed again in its last redrive, operation {operation}."


def _examples(store: Store, taken: Filter, refused: Mapping[str, str]) -> Iterator[Tried]:
    left = NAMED_LIMIT
    for task, why in refused.items():
        page = store.letters.find(replace(taken, task=task), limit=left)
        yield from (Tried(task_id=one.task_id, task=task, why_not=why) for one in page.letters)
        left -= len(page.letters)
        if not left:
            return


def _notes(
    plan: Plan, apart: Mapping[Reason, int], limit: int | None, trial: Trial
) -> Iterator[str]:
    for doubt, count in trial.doubts.items():
        yield f"{count} may fail: {doubt}. Celery accepts their arguments, so they are sent."
    for reason, count in apart.items():
        if count:
            named = f"they are sent only by their ids or with --reason {reason.value}."
            yield f"{count} {NAMED_ONLY[reason]}; {named}"
    if plan.awaited:
        yield f"{plan.awaited} sent already, their outcome is awaited; sent again, they may run twice."
    if plan.in_flight:
        yield (
            f"{plan.in_flight} claimed or redriven already; left alone, their outcome is awaited or unknown."
        )
    if plan.unsendable:
        yield f"{plan.unsendable} cannot be sent and stay dead."
    if limit is not None:
        yield f"The limit of {limit} takes the oldest failures first."
    if trial.trouble:
        yield f"The others were not checked: {trial.trouble}"
    elif plan.tried and not plan.is_exact:
        yield (
            f"The first {plan.tried:,} were checked one by one; the others are checked when it is their "
            "turn. --dry-run checks all of them now."
        )
