"""Letters like those of a shop: about 2 kB, each with other words, and a few hundred causes."""

from __future__ import annotations

import json
import random
import uuid
from dataclasses import replace
from datetime import datetime, timedelta

from celery_dlq.model.letter import Attempt, DeadLetter, Envelope, Explanation
from celery_dlq.model.states import Reason, Verdict

GROUPS, TASKS, QUEUES = 400, 40, 5
#: One in this many letters has used up its five attempts; the others have one.
EXHAUSTED = 5
ATTEMPTS = 5

_WORDS = (
    "lamp", "chair", "table", "shelf", "sofa", "desk", "mirror", "carpet", "curtain", "pillow",
    "blanket", "bottle", "basket", "candle", "drawer", "kettle", "teapot", "saucer", "ladder",
    "hammer", "paint", "brush", "bucket", "garden", "fence", "bench", "swing",
)  # fmt: skip


def shop_letter(drawn: random.Random, failed_at: datetime) -> DeadLetter:
    """A letter that died at ``failed_at``; a few of the causes are frequent."""
    cause = min(int(drawn.expovariate(8 / GROUPS)), GROUPS - 1)
    task, queue, task_id = (
        f"shop.tasks.task_{cause % TASKS}",
        f"queue-{cause % QUEUES}",
        _hex(drawn),
    )
    order = _order(drawn)
    reason = Reason.TERMINAL if drawn.randrange(EXHAUSTED) else Reason.EXHAUSTED
    attempts = _attempts(drawn, failed_at, 1 if reason is Reason.TERMINAL else ATTEMPTS)
    last = attempts[-1]
    return DeadLetter(
        task_id=task_id, task=task, reason=reason,
        explanation=Explanation(
            verdict=last.verdict, rule=last.rule, evidence=last.evidence, path=last.path
        ),
        exception_type=last.exception_type, message=last.message, traceback=_traceback(drawn, last),
        fingerprint=f"{cause:016x}", args=[order], kwargs={"attempt_of": drawn.choice(_WORDS)},
        attempts=attempts, first_failed_at=attempts[0].failed_at, last_failed_at=failed_at,
        worker=last.worker, pid=last.pid, release="2026.11.3", root_id=task_id, parent_id=None,
        group_id=None, correlation_id=task_id, canvas="", tags=(),
        envelope=_envelope(task_id, task, queue, order),
    )  # fmt: skip


def _hex(drawn: random.Random) -> str:
    return uuid.UUID(int=drawn.getrandbits(128), version=4).hex


def _order(drawn: random.Random) -> dict[str, object]:
    items = [
        {"sku": f"{drawn.choice(_WORDS)}-{drawn.randrange(10**6)}", "price": drawn.random() * 500}
        for _ in range(6)
    ]
    return {"number": drawn.randrange(10**9), "customer": _hex(drawn), "items": items}


def _attempts(drawn: random.Random, failed_at: datetime, count: int) -> tuple[Attempt, ...]:
    first = Attempt(
        number=count, redrive=0, failed_at=failed_at, exception_type="shop.errors.Declined",
        message=f"payment {_hex(drawn)} was declined by {drawn.choice(_WORDS)}",
        verdict=Verdict.TRANSIENT if count > 1 else Verdict.TERMINAL, rule="http.status",
        evidence="status=503 from response.status_code", path="shop.errors.Declined",
        worker=f"worker-{drawn.randrange(8)}@host", pid=drawn.randrange(10**5),
    )  # fmt: skip
    return tuple(
        replace(
            first, number=number, failed_at=failed_at - timedelta(seconds=5 * (count - number)),
            delay_s=5.0 if number < count else None,
        )
        for number in range(1, count + 1)
    )  # fmt: skip


def _traceback(drawn: random.Random, last: Attempt) -> str:
    frames = "".join(
        f'  File "/srv/shop/{one}/{two}.py", line {drawn.randrange(900)}, in {two}_{one}\n'
        f"    {two} = {one}.{two}({drawn.randrange(10**6)}, timeout={drawn.randrange(60)})\n"
        for one, two in (drawn.sample(_WORDS, 2) for _ in range(5))
    )
    return f"Traceback (most recent call last):\n{frames}{last.exception_type}: {last.message}\n"


def _envelope(task_id: str, task: str, queue: str, order: dict[str, object]) -> Envelope:
    headers = {
        "lang": "py", "task": task, "id": task_id, "root_id": task_id, "parent_id": None,
        "group": None, "retries": 0, "eta": None, "expires": None, "argsrepr": str(order)[:300],
        "kwargsrepr": "{}", "origin": "gen7@web-3", "timelimit": [None, None], "ignore_result": False,
    }  # fmt: skip
    return Envelope(
        body=json.dumps([[order], {}, {}]).encode(), content_type="application/json",
        content_encoding="utf-8", headers=headers,
        properties={"correlation_id": task_id, "reply_to": task_id[::-1], "priority": 0},
        exchange="", routing_key=queue, queue=queue,
    )  # fmt: skip
