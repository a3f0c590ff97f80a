"""Checks where an act begins whether it needs a second person. Then it becomes a request instead."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from celery_dlq.errors import ApprovalNeeded, OrdersError
from celery_dlq.model.request import Approval
from celery_dlq.settings import Settings
from celery_dlq.store.base import Filter

if TYPE_CHECKING:
    from celery_dlq.store import Store

#: Why letters of a task with a value of the option ``dlq_redrive`` are not sent at once.
_WHY = {
    "never": "letters of {} are never redriven (its option dlq_redrive); discard them",
    "approve": "{} is redriven only after a second person has approved it (its option dlq_redrive)",
}


def why_held(app: Any, option: str, *tasks: str) -> str | None:
    """Why letters of these tasks are not sent at once; None if the ``dlq_redrive`` of none is ``option``."""
    held = (one for one in tasks if getattr(app.tasks.get(one), "dlq_redrive", "") == option)
    return next((_WHY[option].format(one) for one in held), None)


@dataclass(frozen=True)
class Gate:
    """The check of all acts that may need a second person.

    :param proposes: whether each such act becomes a request, because the setting says so for this process.
    """

    app: Any
    store: Store
    settings: Settings
    proposes: bool = False

    def check(
        self, act: str, wanted: Filter, *, who: str, why: str, changes: Mapping[str, Any] = {},
        shown: Mapping[str, Any] = {}, limit: int | None = None, to_task: str | None = None,
        archived: Collection[str] = (),
    ) -> Filter:  # fmt: skip
        """Check an act before anything is changed. Without a rule, this asks the store nothing. Returns the
        letters that it may take: for a deletion, none that came after they were counted.

        :param wanted: its letters, with the states from which it takes them.
        :param changes: all that is needed to carry it out; and ``shown``, for people, without secrets.
        :param limit: it takes at most this many.
        :param to_task: the task that a redrive sends them to.
        :param archived: further letters, which are in the archive.
        :raises ApprovalNeeded: a second person has to approve it. The request was made.
        :raises OrdersError: no letter may be redriven at all.
        :raises FilterError: these are too many letters to decide about.
        """
        if not self._may_need_second(act):
            return wanted
        letters: Mapping[str, str] | None = None
        if act == "delete":
            letters = self.store.requests.freeze(wanted)
            wanted = replace(wanted, ids=(*letters,) or ("",))
        tasks = self.store.counts.by_task(wanted)
        never = [why_held(self.app, "never", task, to_task or task) for task in tasks]
        if act == "redrive" and never and all(never):
            raise OrdersError(f"Nothing can be sent: {never[0]}.")
        count = sum(tasks.values()) + len(archived)
        if not self.why_second(act, min(count, limit or count), tasks, to_task):
            return wanted
        letters = letters or self.store.requests.freeze(wanted, limit, archived)
        rule = self.settings.approval or Approval()
        made = self.store.requests.create(
            wanted, act=act, who=who, why=why, letters=letters, changes=changes, shown=shown,
            expires_after_s=rule.expires_after_s,
        )  # fmt: skip
        raise ApprovalNeeded(
            f"A second person has to approve this, so nothing was changed. Request {made.id} waits until "
            f"{made.expires_at:%Y-%m-%d %H:%M} UTC for another person, who approves it in Flower, under Dead "
            f"letters and Requests. See: celery -A <app> dlq requests show {made.id}",
            made.id,
        )

    def why_second(
        self, act: str, count: int, tasks: Collection[str], to_task: str | None = None
    ) -> str:
        """Why an act on ``count`` letters of these tasks needs a second person; empty if it does not."""
        rule, also = self.settings.approval, {to_task} if to_task else set[str]()
        if not count:
            return ""
        if act == "redrive" and (why := why_held(self.app, "approve", *tasks, *also)):
            return why
        if self.proposes and (rule is None or act in rule.acts):
            return "The command line only asks a second person (dlq_cli_acts)"
        if rule is not None and rule.wants(act, count, {*tasks, *also}):
            return "A second person has to approve this (dlq_approval)"
        return ""

    def _may_need_second(self, act: str) -> bool:
        rule = self.settings.approval
        has_rule = self.proposes if rule is None else act in rule.acts
        options = (getattr(one, "dlq_redrive", "allow") for one in self.app.tasks.values())
        return has_rule or (act == "redrive" and any(one != "allow" for one in options))
