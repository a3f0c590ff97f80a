"""aiven-client against a stub of the API."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent / "lib"))
import holdb_stub as stub  # noqa: E402

LIBRARY = "aiven-client==4.18.0"


def client(base, **kwargs):
    from aiven.client.client import AivenClient

    c = AivenClient(base, **kwargs)
    c.set_auth_token("token")
    return c


def error(status, message):
    import json

    return stub.answer(
        status, json.dumps({"errors": [{"message": message, "status": status}], "message": message})
    )


def get(base, **kwargs):
    with stub.no_sleep():
        client(base, **kwargs).get_service("project", "service")


def cases():
    yield (
        "rate limit (429)",
        lambda: get(error(429, "Rate limit exceeded, please try again later")),
        "transient",
        "firm",
        "aiven/client/client.py:166 Error(response, status); Aiven API docs: 429 rate limiting",
    )
    yield (
        "service unavailable (503)",
        lambda: get(stub.answer(503, "<html>503 Service Temporarily Unavailable</html>")),
        "transient",
        "firm",
        "aiven/client/client.py:166 Error with status 503",
    )
    yield (
        "connection refused",
        lambda: get(stub.refused()),
        "transient",
        "firm",
        "aiven/client/client.py:228: the client itself retries requests' ConnectionError",
    )
    yield (
        "no answer in time",
        lambda: get(stub.silent(), request_timeout=0.3),
        "transient",
        "firm",
        "aiven/client/client.py request_timeout: requests' ReadTimeout",
    )
    yield (
        "wrong token (401)",
        lambda: get(error(401, "Authentication failed")),
        "terminal",
        "firm",
        "aiven/client/client.py:166 Error with status 401",
    )
    yield (
        "no rights (403)",
        lambda: get(error(403, "Not a project member")),
        "terminal",
        "firm",
        "aiven/client/client.py:166 Error with status 403",
    )
    yield (
        "service is missing (404)",
        lambda: get(error(404, "Service does not exist")),
        "terminal",
        "firm",
        "aiven/client/client.py:166 Error with status 404",
    )
    yield (
        "service exists already (409)",
        lambda: client(error(409, "Service name is already in use in this project")).create_service(
            "project", "service", "pg", None, "startup-4", "do-ams"
        ),
        "terminal",
        "firm",
        "aiven/client/client.py:166 Error with status 409; the name stays in use",
    )
