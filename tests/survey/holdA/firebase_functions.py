"""firebase-functions: handlers of Cloud Functions; a handler raises HttpsError."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent / "lib"))

from firebase_functions.https_fn import FunctionsErrorCode as Code, HttpsError  # noqa: E402
from firebase_functions.private import _identity_fn  # noqa: E402
from firebase_functions.pubsub_fn import Message  # noqa: E402

LIBRARY = "firebase-functions==0.6.0"
DOC = "https_fn.py FunctionsErrorCode docstring: "


def fail(code, message):
    raise HttpsError(code, message)


def by_library():
    _identity_fn._validate_auth_response(
        _identity_fn.event_type_before_create, {"custom_claims": {"iss": "x"}}
    )


def cases():
    yield (
        "unavailable",
        lambda: fail(Code.UNAVAILABLE, "The backend is gone."),
        "transient",
        "firm",
        DOC + "most likely a transient condition, cured by a retry with a backoff (raised as a handler does)",
    )
    yield (
        "deadline exceeded",
        lambda: fail(Code.DEADLINE_EXCEEDED, "The backend took too long."),
        "transient",
        "firm",
        DOC + "deadline expired before the operation could complete; HTTP 504 (raised as a handler does)",
    )
    yield (
        "aborted",
        lambda: fail(Code.ABORTED, "The transaction was aborted."),
        "transient",
        "firm",
        DOC + "typically due to a concurrency issue like transaction aborts (raised as a handler does)",
    )
    yield (
        "resource exhausted",
        lambda: fail(Code.RESOURCE_EXHAUSTED, "Quota."),
        "transient",
        "soft",
        DOC
        + "perhaps a per-user quota, or the file system out of space; HTTP 429 (raised as a handler does)",
    )
    yield (
        "reserved claims",
        by_library,
        "terminal",
        "firm",
        DOC + "invalid-argument; private/_identity_fn.py:260",
    )
    yield (
        "not found",
        lambda: fail(Code.NOT_FOUND, "No such document."),
        "terminal",
        "firm",
        DOC + "not found",
    )
    yield (
        "permission denied",
        lambda: fail(Code.PERMISSION_DENIED, "Not yours."),
        "terminal",
        "firm",
        DOC + "no permission",
    )
    yield (
        "the message is no JSON",
        lambda: (
            Message(
                message_id="1", publish_time="x", attributes={}, data="bm8ganNvbg==", ordering_key=""
            ).json
        ),
        "terminal",
        "firm",
        "pubsub_fn.py:72 ValueError: unable to parse",
    )
