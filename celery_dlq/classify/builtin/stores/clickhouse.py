"""ClickHouse: clickhouse-driver and clickhouse-connect."""

from __future__ import annotations

import re

from celery_dlq.classify.builtin.behind import lasting_text, unless_lasting
from celery_dlq.classify.builtin.http import status_verdict
from celery_dlq.classify.evidence import message, number, read
from celery_dlq.classify.table import Finding, Row, probed
from celery_dlq.model.states import Verdict

# ClickHouse src/Common/ErrorCodes.cpp: end of stream, timeout, limits of queries, connections and
# parts, network, Keeper, replicas, memory, S3.
TRANSIENT_CODES = frozenset(
    {
        3,
        32,
        159,
        201,
        202,
        203,
        209,
        210,
        225,
        236,
        241,
        242,
        252,
        279,
        285,
        286,
        319,
        364,
        369,
        425,
        439,
        473,
        499,
        574,
        999,
    }
)
_CODE_IN_TEXT = re.compile(r"Code: ([0-9]{1,4})\.")
_STATUS_IN_TEXT = re.compile(r"(?:response code|HTTP status|status code) ([0-9]{3})\b")
_NETWORK_ERROR, _TIMED_OUT = 210, 209


def clickhouse(exc: BaseException) -> Finding | None:
    """The number in ``code`` or in the text, else the status of an answer without one."""
    text = message(exc)
    in_text = _CODE_IN_TEXT.search(text)
    code = number(read(exc, "code")) or (int(in_text[1]) if in_text else None)
    if code in (_NETWORK_ERROR, _TIMED_OUT):
        return lasting_text(text) or unless_lasting(exc, "clickhouse.code", f"code={code}")
    if code:
        verdict = Verdict.TRANSIENT if code in TRANSIENT_CODES else Verdict.TERMINAL
        return Finding(verdict, "clickhouse.code", f"code={code}")
    answered = _STATUS_IN_TEXT.search(text)
    if answered is None:
        return None
    return Finding(
        status_verdict(int(answered[1])), "http.status", f"status={answered[1]} in the text"
    )


ROWS: tuple[Row, ...] = (
    # clickhouse_driver/errors.py and dbapi/errors.py; clickhouse_connect/driver/exceptions.py.
    probed(
        "clickhouse.code",
        clickhouse,
        "the number in code or in the text, else its cause",
        "clickhouse_driver.errors.Error",
        "clickhouse_driver.dbapi.errors.Error",
        "clickhouse_connect.driver.exceptions.ClickHouseError",
    ),
)
