"""Checks where an act begins whether it needs a second person. Then it becomes a request instead."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from celery_dlq.errors import ApprovalNeeded, OrdersError
from celery_dlq.model.request import Approval
from celery_dlq.settings import Settings
from celery_dlq.store.base import Filter

if TYPE_CHECKING:
    from celery_dlq.store import Store


def redrive_option(app: Any, task: str) -> str:
    """The option ``dlq_redrive`` of a task; ``allow`` for a task that has none, or that ``app`` lacks."""
    return str(getattr(app.tasks.get(task), "dlq_redrive", "allow"))


def why_never(app: Any, *tasks: str) -> str | None:
    """Why letters of these tasks are never sent; None if they may be."""
    for task in tasks:
        if redrive_option(app, task) == "never":
            return f"letters of {task} are never redriven (its option dlq_redrive); discard them"
    return None


def why_not_alone(app: Any, *tasks: str) -> str | None:
    """Why letters of these tasks are sent only after a second person has approved it; None if they are sent
    without."""
    for task in tasks:
        if redrive_option(app, task) == "approve":
            return f"{task} is redriven only after a second person has approved it (its option dlq_redrive)"
    return None


@dataclass(frozen=True)
class Gate:
    """The check of all acts that may need a second person.

    :param proposes: whether each such act becomes a request, because the setting says so for this process.
    """

    app: Any
    store: Store
    settings: Settings
    proposes: bool

    def check(
        self, act: str, wanted: Filter, *, who: str, why: str, changes: Mapping[str, Any] = {},
        shown: Mapping[str, Any] = {}, limit: int | None = None, to_task: str | None = None,
        archived: Collection[str] = (),
    ) -> None:  # fmt: skip
        """Check an act before anything is changed. Without a rule, this asks the store nothing.

        :param wanted: its letters, with the states from which it takes them.
        :param changes: all that is needed to carry it out; and ``shown``, for people, without secrets.
        :param limit: it takes at most this many.
        :param to_task: the task that a redrive sends them to.
        :param archived: further letters, which are in the archive.
        :raises ApprovalNeeded: a second person has to approve it. The request was made.
        :raises OrdersError: no letter may be redriven at all.
        """
        rule = self.settings.approval
        is_redrive = act == "redrive"
        has_option = is_redrive and any(
            redrive_option(self.app, task) != "allow" for task in self.app.tasks
        )
        if rule is None and not self.proposes and not has_option:
            return
        # The task that they are sent to may be their own, whose letters count.
        tasks = {**({to_task: 0} if to_task else {}), **self.store.counts.by_task(wanted)}
        count = sum(tasks.values()) + len(archived)
        never = [why_never(self.app, task) for task in tasks] if is_redrive else []
        if never and all(never):
            raise OrdersError(f"Nothing can be sent: {never[0]}.")
        if not count or not self._needs_second(act, min(count, limit or count), tasks):
            return
        made = self.store.requests.create(
            act=act, who=who, why=why, wanted=wanted, limit=limit, changes=changes,
            shown=shown, archived=archived,
            expires_after_s=(rule or Approval()).expires_after_s,
        )  # fmt: skip
        raise ApprovalNeeded(
            f"A second person has to approve this, so nothing was changed. Request {made.id} waits until "
            f"{made.expires_at:%Y-%m-%d %H:%M} UTC for another person, who approves it in Flower, under Dead "
            f"letters and Requests. See: celery -A <app> dlq requests show {made.id}",
            made.id,
        )

    def _needs_second(self, act: str, count: int, tasks: Collection[str]) -> bool:
        rule = self.settings.approval
        if act == "redrive" and why_not_alone(self.app, *tasks):
            return True
        if self.proposes and (rule is None or act in rule.acts):
            return True
        return rule is not None and rule.wants(act, count, tasks)
