"""trieve-py-client: search service Trieve (an OpenAPI client on urllib3)."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent / "lib"))

import trieve_py_client as trieve  # noqa: E402
import holda_stub as stub  # noqa: E402

LIBRARY = "trieve-py-client==0.12.12"
FILE = "trieve_py_client/exceptions.py from_response: "


def dataset(address, timeout=None, dataset_id="1"):
    with trieve.ApiClient(trieve.Configuration(host=address, api_key={"ApiKey": "x"})) as client:
        return trieve.DatasetApi(client).get_dataset("1", dataset_id, _request_timeout=timeout)


def error(status, message):
    return dataset(stub.answer(status, {"message": message}))


def unknown_host():
    with stub.no_such_host():
        return dataset("http://api.nowhere.example")


def cases():
    yield (
        "the service is unavailable",
        lambda: error(503, "Service unavailable"),
        "transient",
        "firm",
        FILE + "5xx is a ServiceException",
    )
    yield (
        "too many requests",
        lambda: error(429, "Rate limit exceeded"),
        "transient",
        "firm",
        FILE + "429 is a plain ApiException",
    )
    yield (
        "connection refused",
        lambda: dataset(stub.closed()),
        "transient",
        "firm",
        "rest.py request: urllib3's MaxRetryError as it is",
    )
    yield (
        "no answer in time",
        lambda: dataset(stub.silent(), 0.2),
        "transient",
        "firm",
        "rest.py request: _request_timeout; urllib3's MaxRetryError of a ReadTimeoutError",
    )
    yield (
        "wrong key",
        lambda: error(401, "Unauthorized"),
        "terminal",
        "firm",
        FILE + "UnauthorizedException",
    )
    yield (
        "no such dataset",
        lambda: error(404, "Dataset not found"),
        "terminal",
        "firm",
        FILE + "NotFoundException",
    )
    yield (
        "bad certificate",
        lambda: dataset(stub.self_signed()),
        "terminal",
        "firm",
        "rest.py request: urllib3's error, certificate verification failed",
    )
    yield ("unknown host", unknown_host, "terminal", "firm", "the host name does not exist")
