"""Acts of the audit, as sentences without their subject: ``discarded 3 letters``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from celery_dlq.store.base import AuditRow
from celery_dlq.view.text import counted
from celery_dlq.view.times import local, parse_point

Detail = Mapping[str, Any]

#: Sentences whose only changing part is the number of letters.
_OF_LETTERS = {
    "edit": "edited the message of {}", "discard": "discarded {}", "undiscard": "reopened {}",
    "unpark": "let {} run now", "reclassify": "judged {} by today's rules", "delete": "deleted {}",
    "expire": "deleted {} by retention", "archive": "archived {}",
    "restore": "brought {} back from the archive",
    "verify": "checked {} of the archive", "forget": "erased {}", "regroup": "grouped {} again",
    "recover": "made {} of the messages of killed workers", "drain": "drained {} from the spool",
    "import": "stored {} from a file", "hold": "kept {} from automatic redrives",
    "ticket": "opened a ticket for {}", "escalate": "escalated {}",
}  # fmt: skip

#: The past of what is done to a redrive, which may be an automatic one.
_OF_REDRIVES = {
    "pause": "paused", "resume": "resumed", "cancel": "cancelled", "abort": "stopped", "run": "started",
    "suspend": "suspended",
}  # fmt: skip


def sentence(act: AuditRow, moment: Callable[[datetime], str] = local) -> str:
    """What was done, and to how many letters or to which thing. The names in it are as they were given.

    :param moment: a time as text.
    """
    detail = act.detail
    if act.act in _OF_LETTERS:
        return _OF_LETTERS[act.act].format(counted(act.count, "letter"))
    if act.act in _OF_REDRIVES:
        return f"{_OF_REDRIVES[act.act]} {_redrive(detail)}"
    if act.act in _OF_REQUESTS:
        return _OF_REQUESTS[act.act].format(detail.get("act"), counted(act.count, "letter"))
    if act.act == "ignore":
        return f"ignored the group {_until(detail, moment)}"
    said = _OF_OTHERS.get(act.act)
    return said(detail, act.count) if said else act.act


def _redrive(detail: Detail) -> str:
    if detail.get("operation"):
        return "the redrive"
    return f"the automatic redrive {detail['auto']}" if detail.get("auto") else "automatic redrives"


def _until(detail: Detail, moment: Callable[[datetime], str]) -> str:
    ends = []
    if detail.get("until"):
        ends.append(f"until {moment(parse_point(str(detail['until'])))}")
    if detail.get("rate"):
        ends.append(f"until {counted(int(detail['rate']), 'failure')} within an hour")
    if detail.get("count"):
        ends.append(f"for {counted(int(detail['count']), 'more failure')}")
    return ", or ".join(ends) or "until it is reopened"


def _resolved(detail: Detail, _count: int) -> str:
    release = detail.get("release")
    return f"resolved the group in release {release}" if release else "resolved the group"


def _assigned(detail: Detail, _count: int) -> str:
    owner = detail.get("owner")
    return f"gave the group to {owner}" if owner else "removed the owner of the group"


#: What was done about an act that needs a second person.
_OF_REQUESTS = {
    "request": "asked to {} {}", "approve": "approved: {} {}", "refuse": "refused: {} {}",
    "deny": "was not allowed to answer the request: {} {}",
}  # fmt: skip


#: Sentences with parts of the detail.
_OF_OTHERS: Mapping[str, Callable[[Detail, int], str]] = {
    "redrive": lambda _detail, count: f"began a redrive of {counted(count, 'letter')}",
    "ingest": lambda detail, count: (
        f"brought in {counted(count, 'letter')} from {detail.get('queue')}"
    ),
    "resolve": _resolved,
    "reopen": lambda _detail, _count: "reopened the group",
    "note": lambda detail, _count: "wrote the note" if detail.get("note") else "removed the note",
    "assign": _assigned,
    "rotate": lambda detail, _count: f"encrypted what is stored with the key {detail.get('key')}",
    "merge": lambda detail, _count: f"merged the group into {detail.get('into')}",
    "split": lambda detail, _count: f"split {detail.get('member') or 'all'} off the group",
}
