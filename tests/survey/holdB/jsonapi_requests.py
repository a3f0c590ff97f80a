"""jsonapi-requests: a stub of a JSON:API server."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent / "lib"))
import holdb_stub as stub  # noqa: E402

LIBRARY = "jsonapi-requests==0.8.0"


def api(base, **config):
    import jsonapi_requests

    return jsonapi_requests.Api.config({"API_ROOT": base, "RETRIES": 2, "TIMEOUT": 0.3, **config})


def get(base, **config):
    api(base, **config).endpoint("articles/1").get()


def error(status, title):
    import json

    return stub.answer(status, json.dumps({"errors": [{"status": str(status), "title": title}]}))


def load():
    from jsonapi_requests.data import JsonApiResponse

    JsonApiResponse.from_data("no object")


def cases():
    yield (
        "connection refused",
        lambda: get(stub.refused()),
        "transient",
        "firm",
        "jsonapi_requests/request_factory.py ApiConnectionError: the client itself retries it",
    )
    yield (
        "no answer in time",
        lambda: get(stub.silent()),
        "transient",
        "firm",
        (
            "jsonapi_requests/request_factory.py ApiConnectionError from requests.Timeout: the client itself"
            " retries it"
        ),
    )
    yield (
        "503",
        lambda: get(error(503, "Service Unavailable")),
        "transient",
        "firm",
        "jsonapi_requests/request_factory.py ApiInternalServerError: the client itself retries it",
    )
    yield (
        "500",
        lambda: get(error(500, "Internal Server Error")),
        "transient",
        "soft",
        "jsonapi_requests/request_factory.py ApiInternalServerError: the client itself retries it",
    )
    yield (
        "429",
        lambda: get(error(429, "Too Many Requests")),
        "transient",
        "firm",
        "jsonapi_requests/request_factory.py ApiClientError with status_code 429",
    )
    yield (
        "404",
        lambda: get(error(404, "Not Found")),
        "terminal",
        "firm",
        "jsonapi_requests/request_factory.py ApiClientError with status_code 404",
    )
    yield (
        "422",
        lambda: get(error(422, "Title can't be blank")),
        "terminal",
        "firm",
        "jsonapi_requests/request_factory.py ApiClientError with status_code 422",
    )
    yield (
        "answer is no JSON",
        lambda: get(stub.answer(200, "<html>Login</html>")),
        "terminal",
        "soft",
        "jsonapi_requests/request_factory.py ApiInvalidResponseError with status_code 200",
    )
