"""One secret in every place of a store that may hold one, as an earlier version may have written it there."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import TYPE_CHECKING

from support.factories import T0, attempt, envelope, letter, operation

from celery_dlq.model.headers import ATTEMPTS_HEADER
from celery_dlq.model.letter import Explanation
from celery_dlq.model.operation import Orders, Repair
from celery_dlq.model.states import Verdict
from celery_dlq.store.base import Edit
from celery_dlq.worker.failure import write_attempts

if TYPE_CHECKING:
    from celery_dlq.store import Store

SECRET = "Zq7planted9xW"

TASK_ID, OPERATION, GROUP = "5ec4e7aa", "0pe4a7100001", "9c1e0000deadbeef"

TEXT = (
    f"cannot reach postgresql://shop:{SECRET}@db/shop with password={SECRET} user=shop; tried "
    f"redis://:{SECRET}@cache/0, https://api.example.com/pay?token={SECRET}&n=1, and {{'pwd': '{SECRET}'}}; "
    f"sent Authorization: Bearer {SECRET}"
)

ARGS = [
    {"password": SECRET}, [["Authorization", SECRET]], f"amqp://u:{SECRET}@mq//",
    {"dsn": SECRET, "pass": SECRET},
    {"name": "API_KEY", "value": SECRET},
]  # fmt: skip
KWARGS = {"accessToken": SECRET, "note": TEXT, "deep": {"apiKey": [SECRET]}}

TRACEBACK = f"""Traceback (most recent call last):
  File "/srv/shop/tasks.py", line 9, in charge
    connect("postgresql://shop:{SECRET}@db/shop", password="{SECRET}")
ConnectionError: {TEXT}
"""

# The newest failure of its group, whose message is the group's example.
ATTEMPT = attempt(minutes=25, message=TEXT, evidence=f"text={TEXT}")

HEADERS = {
    "id": TASK_ID, "task": "shop.charge", "X-Auth-Token": SECRET, "argsrepr": repr(ARGS),
    "kwargsrepr": SECRET,
    "stamps": {"api_key": [SECRET]}, "forwarded": [["Cookie", SECRET]], "origin": TEXT, "eta": TEXT,
    ATTEMPTS_HEADER: write_attempts([ATTEMPT]),
}  # fmt: skip


def planted_letter(task_id: str = TASK_ID, **changes):
    body = json.dumps([ARGS, KWARGS, {"errbacks": [{"task": "shop.alert"}]}]).encode()
    values = {
        "message": TEXT, "traceback": TRACEBACK, "args": ARGS, "kwargs": KWARGS,
        "explanation": Explanation(verdict=Verdict.TERMINAL, rule="python.bug", evidence=f"text={TEXT}"),
        "envelope": envelope(task_id, body=body, headers={**HEADERS, "id": task_id}), **changes,
    }  # fmt: skip
    return letter(task_id, ATTEMPT, **values)


def planted_operation():
    places = (
        "kwargs.password", "headers.X-Auth-Token", 'kwargs["card_token"]', "kwargs.password[0]",
        "args[0].api_key", 'kwargs["password"].value',
    )  # fmt: skip
    written = (f'"{SECRET} {SECRET}"', SECRET, f"{SECRET} {SECRET}", f'{{"of": "{SECRET}"}}')
    assignments = tuple(f"{place}={value}" for place in places for value in written)
    repair = Repair(assignments=(*assignments, f'kwargs.order={{"api_key": "{SECRET}"}}'))
    return operation(OPERATION, orders=Orders(repair=repair), cause=TEXT)


def plant(store: Store) -> None:
    """A letter whose message was changed, one that was sent and one that was skipped; their operation, their
    group, and what operators did."""
    ids = [TASK_ID, "5ec4e7bb", "5ec4e7cc"]
    store.letters.save([planted_letter(task_id) for task_id in ids])
    store.letters.save([planted_letter("unread", args=None, kwargs=None)])
    changed = Edit(
        task_id=TASK_ID, before=planted_letter().envelope, after=planted_letter().envelope, args=ARGS,
        kwargs=KWARGS, diff=f'- kwargs.password = "{SECRET}"\n+ kwargs.dsn = "{SECRET}"',
        who="ann", at=T0,
    )  # fmt: skip
    assert store.edits.save(changed)
    running = planted_operation()
    store.operations.create(running)
    claim = store.claims.take(
        running,
        token="t",
        lease_until=T0 + timedelta(days=9),
        limit=2,
        now=T0 + timedelta(minutes=1),
    )
    held = [found.task_id for found in claim.letters]
    assert len(held) == 2, held
    store.claims.confirm(OPERATION, "t", {held[0]: f'+ kwargs.pwd = "{SECRET}"'}, now=T0)
    store.claims.skip(
        OPERATION, "t", {held[1]: f"it cannot be checked (ValueError: {TEXT})"}, now=T0
    )
    store.audit.note(
        who="ann", act="redrive", count=1, at=T0,
        detail={"operation": OPERATION, "set": [f"kwargs.pwd={SECRET}"], "changed": {"token": SECRET}},
    )  # fmt: skip
