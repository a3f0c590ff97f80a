"""robocorp-workitems: work items of Control Room."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent / "lib"))

import os  # noqa: E402
from unittest import mock  # noqa: E402

from robocorp.workitems import ApplicationException, BusinessException  # noqa: E402
from robocorp.workitems._adapters import RobocorpAdapter  # noqa: E402
import holda_stub as stub  # noqa: E402

LIBRARY = "robocorp-workitems==1.5.1"
FILE = "robocorp/workitems/_requests.py _needs_retry: "


def adapter(address):
    names = (
        "RC_WORKSPACE_ID RC_PROCESS_RUN_ID RC_ACTIVITY_RUN_ID RC_WORKITEM_ID RC_API_WORKITEM_TOKEN "
        "RC_API_PROCESS_TOKEN RC_PROCESS_ID"
    )
    with mock.patch.dict(
        os.environ,
        {
            **dict.fromkeys(names.split(), "1"),
            "RC_API_WORKITEM_HOST": address,
            "RC_API_PROCESS_HOST": address,
        },
    ):
        return RobocorpAdapter()


def save(address, timeout=None):
    with (
        mock.patch("robocorp.workitems._requests.time"),
        mock.patch("tenacity.nap.time"),
        mock.patch("robocorp.workitems._requests.DEFAULT_TIMEOUT", timeout or 5),
    ):
        return adapter(address).save_payload("7", {"a": 1})


def error(status, code, message):
    return save(stub.answer(status, {"status": status, "error": {"code": code, "message": message}}))


def application():
    raise ApplicationException("Unable to load the page", code="WEBSITE_DOWN")


def business():
    raise BusinessException("The customer has no address", code="NO_ADDRESS")


def cases():
    yield (
        "rate limit",
        lambda: error(429, "RATE_LIMIT", "Too many requests"),
        "transient",
        "firm",
        FILE + "429 sleeps extra and retries",
    )
    yield (
        "Control Room is unavailable",
        lambda: error(503, "UNAVAILABLE", "Service unavailable"),
        "transient",
        "firm",
        FILE + "503 is not in no_retry_codes",
    )
    yield (
        "connection refused",
        lambda: save(stub.closed()),
        "transient",
        "firm",
        FILE + "all but HTTPError is retried",
    )
    yield (
        "no answer in time",
        lambda: save(stub.silent(), 0.2),
        "transient",
        "firm",
        "_requests.py:23 DEFAULT_TIMEOUT, retried",
    )
    yield (
        "wrong token",
        lambda: error(401, "UNAUTHORIZED", "Missing auth token"),
        "terminal",
        "firm",
        FILE + "401 is not retried",
    )
    yield (
        "no such item",
        lambda: error(404, "NOT_FOUND", "Work item not found"),
        "terminal",
        "firm",
        FILE + "404 is not retried",
    )
    yield (
        "business exception",
        business,
        "terminal",
        "firm",
        "_types.py:25: BUSINESS is wrong or missing data, shouldn't be retried (raised as a user does)",
    )
    yield (
        "application exception",
        application,
        "transient",
        "soft",
        "_types.py:26: APPLICATION is a logic issue or a timeout, can be retried (raised as a user does)",
    )
