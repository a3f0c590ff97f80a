"""python-dynamodb-lock: locks in DynamoDB."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent / "lib"))

import datetime  # noqa: E402

import boto3  # noqa: E402
from botocore.config import Config  # noqa: E402
from python_dynamodb_lock.python_dynamodb_lock import DynamoDBLockClient  # noqa: E402
import holda_stub as stub  # noqa: E402

LIBRARY = "python-dynamodb-lock==0.9.1"
AWS = "docs: docs.aws.amazon.com/amazondynamodb/latest/developerguide/Programming.Errors.html: "
T = datetime.timedelta
MADE = []
ITEM = {
    "Item": {
        k: {"S": v}
        for k, v in dict(
            lock_key="k", sort_key="-", owner_name="other", lease_duration="99", record_version_number="7"
        ).items()
    }
}
ITEM["Item"].update({"lease_duration": {"N": "99"}, "expiry_time": {"N": "99999999999"}})


def client(address):
    resource = boto3.resource(
        "dynamodb",
        endpoint_url=address,
        region_name="eu-west-1",
        aws_access_key_id="a",
        aws_secret_access_key="b",
        config=Config(retries={"total_max_attempts": 1}, read_timeout=0.5, connect_timeout=0.5),
    )
    c = DynamoDBLockClient(
        resource, heartbeat_period=T(seconds=0.2), safe_period=T(seconds=1), lease_duration=T(seconds=2)
    )
    MADE.append(c)
    return c


def closing(work):
    """Do the work, then stop the threads of the clients that it made."""

    def run():
        try:
            work()
        finally:
            while MADE:
                MADE.pop()._shutting_down = True

    return run


def acquire(address):
    return client(address).acquire_lock("k", retry_period=T(seconds=0.1), retry_timeout=T(seconds=0.25))


def error(code, text, status=400, after=()):
    return stub.serve(
        *after, (status, {"__type": "com.amazonaws.dynamodb.v20120810#" + code, "message": text}, {})
    )


def stolen():
    c = client(
        error(
            "ConditionalCheckFailedException",
            "The conditional request failed",
            after=[(200, {}, {}), (200, {}, {})],
        )
    )
    c._heartbeat_period = T(seconds=60)
    lock = c.acquire_lock("k")
    c.release_lock(lock, best_effort=False)


def not_owned():
    one = client(stub.answer(200, {}))
    lock = one.acquire_lock("k")
    client(stub.answer(200, {})).release_lock(lock, best_effort=False)


def raw_cases():
    yield (
        "somebody else holds the lock",
        lambda: acquire(stub.answer(200, ITEM)),
        "transient",
        "firm",
        "python_dynamodb_lock.py:476 ACQUIRE_TIMEOUT; acquire_lock docstring: giving up and timing out",
    )
    yield (
        "the table is throttled",
        lambda: acquire(
            error(
                "ProvisionedThroughputExceededException",
                "The level of configured provisioned throughput for the table was exceeded.",
            )
        ),
        "transient",
        "firm",
        AWS + "ProvisionedThroughputExceededException: OK to retry, yes; line 467 UNKNOWN, str(e)",
    )
    yield (
        "connection refused",
        lambda: acquire(stub.closed()),
        "transient",
        "firm",
        "line 469 UNKNOWN with the text of botocore's EndpointConnectionError",
    )
    yield (
        "the table does not answer",
        lambda: acquire(stub.silent()),
        "transient",
        "firm",
        "line 469 UNKNOWN with the text of botocore's ReadTimeoutError",
    )
    yield (
        "the lock was stolen",
        stolen,
        "transient",
        "soft",
        "line 547 LOCK_STOLEN: another attempt takes the lock anew (but the first one's work may be done)",
    )
    yield (
        "no such table",
        lambda: acquire(error("ResourceNotFoundException", "Requested resource not found")),
        "terminal",
        "firm",
        AWS + "ResourceNotFoundException: OK to retry, no",
    )
    yield (
        "no rights",
        lambda: acquire(
            error("AccessDeniedException", "User: x is not authorized to perform: dynamodb:GetItem")
        ),
        "terminal",
        "firm",
        AWS + "AccessDeniedException: OK to retry, no",
    )
    yield (
        "release of a lock of another client",
        not_owned,
        "terminal",
        "firm",
        "line 515 LOCK_NOT_OWNED: a mistake of the program",
    )


def cases():
    for name, work, *rest in raw_cases():
        yield name, closing(work), *rest
