"""python-telegram-bot: telegram/error.py."""

from __future__ import annotations

import re

from celery_dlq.classify.builtin.http import status_verdict
from celery_dlq.classify.evidence import message
from celery_dlq.classify.table import Finding, network, terminal, transient, within
from celery_dlq.model.states import Verdict

# telegram/request/_baserequest.py: "<phrase> (<status>)" for statuses without a class, unless the
# answer describes itself, as Telegram's 413 does.
_STATUS = re.compile(r"Request Entity Too Large|[A-Za-z' -]+ \((4[0-9]{2})\)")


def refused(exc: BaseException) -> Finding | None:
    """NetworkError also stands for answers; of these, most that begin with 4 will not change."""
    match = _STATUS.match(message(exc))
    if match is None:
        return None
    status = int(match[1] or 413)
    if status_verdict(status) is Verdict.TRANSIENT:
        return None
    return Finding(Verdict.TERMINAL, "telegram.request", f"status={status}")


ROWS = (
    network("telegram.network", "telegram.error.NetworkError", probe=refused),
    transient("telegram.flood", "telegram.error.RetryAfter"),
    # BadRequest derives from NetworkError.
    terminal(
        "telegram.request",
        *within(
            "telegram.error",
            "BadRequest ChatMigrated Conflict EndPointNotFound Forbidden InvalidToken "
            "PassportDecryptionError Unauthorized TelegramDecryptionError",
        ),
        "telegram.ext._callbackdatacache.InvalidCallbackData",
    ),
)
