"""A redrive that a test makes step by step."""

from __future__ import annotations

import uuid
from datetime import datetime, timedelta, timezone

from project import Project

from celery_dlq import Filter
from celery_dlq.model.operation import Counts, OperationState, Orders
from celery_dlq.model.states import State
from celery_dlq.redrive.broker.publisher import open_publisher
from celery_dlq.store.base import Claim, Operation


class StepwiseRedrive:
    """One operation over the letters of a project in one state."""

    def __init__(self, project: Project, state: State = State.DEAD) -> None:
        self._app, self._store = project.app, project.dlq.store
        self._operation = Operation(
            id=uuid.uuid4().hex[:12],
            wanted=Filter(queue=project.queue, states=frozenset({state})),
            orders=Orders(),
            # A worker that starts would continue a running operation that has no lease.
            state=OperationState.PLANNED,
            counts=Counts(planned=1),
            who="tester",
            host="here",
            created_at=datetime.now(timezone.utc),
        )
        self._store.operations.create(self._operation)

    def claim(self, lease_s: float = 60.0) -> Claim:
        """Claim all letters, as another copy of each."""
        now = datetime.now(timezone.utc)
        return self._store.claims.take(
            self._operation, token=uuid.uuid4().hex, lease_until=now + timedelta(seconds=lease_s),
            limit=100, now=now,
        )  # fmt: skip

    def publish(self, claim: Claim) -> None:
        """Send the messages to the broker."""
        with open_publisher(self._app) as publisher:
            sent = publisher.send(claim.letters)
        assert len(sent.confirmed) == len(claim.letters) > 0

    def mark(self, claim: Claim) -> None:
        """Mark the letters as sent."""
        sent = {letter.task_id: "" for letter in claim.letters}
        now = datetime.now(timezone.utc)
        self._store.claims.confirm(self._operation.id, claim.token, sent, now=now, is_all=True)
