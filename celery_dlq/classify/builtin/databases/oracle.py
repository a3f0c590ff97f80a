"""Oracle through python-oracledb and cx_Oracle: the code of the error object in ``args[0]``."""

from __future__ import annotations

import re

from celery_dlq.classify.builtin.behind import unless_lasting
from celery_dlq.classify.evidence import arguments, number, read, text_of
from celery_dlq.classify.table import Finding, probed
from celery_dlq.model.states import Verdict

# Oracle Database Error Messages. The second half are those of the network layer (TNS).
TRANSIENT_NUMBERS = frozenset(
    {
        18, 20, 28, 51, 54, 60,  # sessions, processes, killed, resource wait, busy, deadlock
        376, 1012, 1033, 1034, 1089, 1090, 1092, 1115,  # file, not logged on, start, shutdown
        2391, 2396, 2399, 3113, 3114, 3135, 3136,  # limits of a session, connection lost
        4020, 4021, 4061, 4068, 8177, 30006,  # locks on objects, package state, serialization
        12152, 12153, 12157, 12161, 12170, 12224, 12500, 12514, 12516, 12518, 12519, 12520, 12525,
        12526, 12527, 12528, 12530, 12535, 12537, 12540, 12541, 12543, 12547, 12560, 12564, 12570,
        12571, 12606, 12607, 12608, 12609, 12757, 25401, 25402, 25403, 25405, 25408, 25409,
    }
)  # fmt: skip

# oracledb/errors.py (DPY, 6005 and 6001 being its ORA-12541 and ORA-12514) and ODPI-C's
# dpiErrorMessages.h (DPI): not connected, pool, closed, call timeout, idle for too long.
_TRANSIENT_DRIVER_CODES = frozenset(
    {
        "DPY-1001", "DPY-4005", "DPY-4011", "DPY-4024", "DPY-4033", "DPY-6001", "DPY-6005",
        "DPI-1010", "DPI-1067", "DPI-1080",
    }
)  # fmt: skip
_DRIVER_CODE = re.compile(r"(?:DPY|DPI)-[0-9]{4}")


def oracle_error(exc: BaseException) -> Finding | None:
    """``isrecoverable``, the driver's own code, else the database's number."""
    error = next(iter(arguments(exc)), None)
    if read(error, "isrecoverable") is True:
        return Finding(Verdict.TRANSIENT, "oracle.code", "isrecoverable=True from args[0]")
    driver_code = _DRIVER_CODE.match(text_of(read(error, "full_code")) or text_of(error) or "")
    if driver_code is None and text_of(read(error, "message")) is not None:
        driver_code = _DRIVER_CODE.match(text_of(read(error, "message")) or "")
    if driver_code is not None:
        evidence = f"code={driver_code[0]} from args[0]"
        if driver_code[0] in _TRANSIENT_DRIVER_CODES:
            return unless_lasting(exc, "oracle.code", evidence)
        return Finding(Verdict.TERMINAL, "oracle.code", evidence)
    code = number(read(error, "code"))
    if not code:
        return None
    verdict = Verdict.TRANSIENT if code in TRANSIENT_NUMBERS else Verdict.TERMINAL
    return Finding(verdict, "oracle.code", f"code=ORA-{code:05} from args[0].code")


ROWS = (
    probed(
        "oracle.code",
        oracle_error,
        "isrecoverable or the code in args[0]",
        "oracledb.exceptions.Error",
        "cx_Oracle.Error",
    ),
)
