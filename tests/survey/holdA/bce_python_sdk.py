"""bce-python-sdk: Baidu cloud (object storage BOS)."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent / "lib"))

from baidubce.auth.bce_credentials import BceCredentials  # noqa: E402
from baidubce.bce_client_configuration import BceClientConfiguration  # noqa: E402
from baidubce.retry.retry_policy import NoRetryPolicy  # noqa: E402
from baidubce.services.bos.bos_client import BosClient  # noqa: E402
import holda_stub as stub  # noqa: E402

LIBRARY = "bce-python-sdk==0.9.79"
CODES = "docs: intl.cloud.baidu.com/doc/BOS/s/Ajwvysfpl-en (error codes): "


def client(address, **kw):
    return BosClient(
        BceClientConfiguration(
            credentials=BceCredentials("ak", "sk"), endpoint=address, retry_policy=NoRetryPolicy(), **kw
        )
    )


def get(status, code, message):
    answer = {"code": code, "message": message, "requestId": "4db2b34d"}
    return client(stub.answer(status, answer)).get_bucket_location("bucket")


def cases():
    yield (
        "the service is unavailable",
        lambda: get(503, "ServiceUnavailable", "The service is unavailable."),
        "transient",
        "firm",
        "retry/retry_policy.py BackOffRetryPolicy.should_retry: SERVICE_UNAVAILABLE",
    )
    yield (
        "too many requests",
        lambda: get(429, "RequestLimited", "Request frequency is too high, please slow down"),
        "transient",
        "firm",
        "docs: intl.cloud.baidu.com/doc/BLS/s/tk8r3cj4r-en: RequestLimited 429 (one code path for all)",
    )
    yield (
        "internal error",
        lambda: get(500, "InternalError", "We encountered an internal error. Please try again."),
        "transient",
        "soft",
        CODES + "InternalError 500: please try again; retry_policy.py retries 500",
    )
    yield (
        "connection refused",
        lambda: client(stub.closed()).list_buckets(),
        "transient",
        "firm",
        "retry_policy.py: always retry on IOError; BceHttpClientError.last_error is the refusal",
    )
    yield (
        "no answer in time",
        lambda: client(stub.silent(), connection_timeout_in_mills=300).list_buckets(),
        "transient",
        "firm",
        "retry_policy.py: always retry on IOError; last_error is a TimeoutError",
    )
    yield (
        "no rights",
        lambda: get(403, "AccessDenied", "Access denied."),
        "terminal",
        "firm",
        CODES + "AccessDenied 403",
    )
    yield (
        "no such bucket",
        lambda: get(404, "NoSuchBucket", "The specified bucket does not exist."),
        "terminal",
        "firm",
        CODES + "NoSuchBucket 404",
    )
    yield (
        "a line end in a header",
        lambda: client(stub.closed()).put_object_from_string("bucket", "key", "x", content_type="a\nb"),
        "terminal",
        "firm",
        "http/bce_http_client.py check_headers: BceClientError",
    )
