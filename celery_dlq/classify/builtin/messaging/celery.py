"""kombu, Celery and billiard: the errors of the message path itself."""

from __future__ import annotations

from celery_dlq.classify.builtin.http import http_status
from celery_dlq.classify.table import Row, network, probed, terminal, transient, within

# kombu/exceptions.py. OperationalError wraps what the transport raised, authentication included.
# BatchPublishError leaves open what was sent, so that a second attempt may double it.
_KOMBU = (
    network("kombu.operational", "kombu.exceptions.OperationalError"),
    transient("kombu.limit", "kombu.exceptions.LimitExceeded"),
    terminal(
        "kombu.message",
        *within(
            "kombu.exceptions",
            "SerializationError SerializerNotInstalled NotBoundError MessageStateError "
            "VersionMismatch BatchPublishError",
        ),
        "kombu.transport.virtual.base.NotEquivalentError",
        "kombu.matcher.MatcherNotInstalled",
        "kombu.transport.qpid.AuthenticationFailure",
    ),
    probed(
        "http.status", http_status(("code",)), "the status in code", "kombu.exceptions.HttpError"
    ),
)

# celery/exceptions.py, billiard/exceptions.py. A time limit or a lost worker is most likely met
# again by the same input.
_CELERY = (
    transient("celery.backend", *within("celery.exceptions", "TimeoutError BackendError")),
    terminal(
        "celery.task",
        *within(
            "celery.exceptions",
            "MaxRetriesExceededError NotRegistered AlreadyRegistered QueueNotFound ChordError "
            "TaskRevokedError InvalidTaskError ImproperlyConfigured SecurityError IncompleteStream",
        ),
        "celery.backends.rpc.BacklogLimitExceeded",
        # billiard/pool.py: what the task returned cannot be pickled.
        "billiard.pool.MaybeEncodingError",
    ),
    terminal(
        "celery.limit",
        *within(
            "billiard.exceptions",
            "SoftTimeLimitExceeded TimeLimitExceeded WorkerLostError Terminated RestartFreqExceeded",
        ),
    ),
)

ROWS: tuple[Row, ...] = (*_KOMBU, *_CELERY)
