"""kr8s: a stub of the Kubernetes API server on 127.0.0.1."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent / "lib"))
import holdb_stub as stub  # noqa: E402

LIBRARY = "kr8s==0.20.15"


def pod(base, timeout=None):
    import kr8s
    from kr8s.objects import Pod

    api = kr8s.api(url=base)
    if timeout:
        api.timeout = timeout
    return Pod(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "web", "namespace": "default"},
            "spec": {"containers": [{"name": "web", "image": "web"}]},
        },
        api=api,
    )


def server(code, body, headers=None, delay=0):
    """The version is always told (kr8s asks for it first), every other path gets the one answer."""
    version = '{"major": "1", "minor": "34", "gitVersion": "v1.34.0"}'
    return stub.serve(
        lambda method, path: (
            (200, version, {"Content-Type": "application/json"}, 0)
            if path.startswith("/version")
            else (code, body, headers, delay)
        )
    )


def status(code, reason, message, headers=None):
    import json

    body = json.dumps(
        {
            "kind": "Status",
            "apiVersion": "v1",
            "status": "Failure",
            "message": message,
            "reason": reason,
            "code": code,
        }
    )
    return server(code, body, {"Content-Type": "application/json", **(headers or {})})


def cases():
    yield (
        "API server does not answer in time",
        lambda: pod(server(200, "{}", delay=5), 0.5).refresh(),
        "transient",
        "firm",
        "kr8s/_exceptions.py APITimeoutError: a timeout while waiting for the API server; _api.py:223",
    )
    yield (
        "connection refused",
        lambda: pod(stub.refused()).refresh(),
        "transient",
        "firm",
        "httpx.ConnectError passes through kr8s/_api.py call_api",
    )
    yield (
        "429 of the API server",
        lambda: pod(
            status(
                429,
                "TooManyRequests",
                "the server has received too many requests and has asked us to try again later",
                {"Retry-After": "1"},
            )
        ).refresh(),
        "transient",
        "firm",
        "kr8s/_exceptions.py ServerError with response; _api.py:202; Kubernetes API: 429 retry",
    )
    yield (
        "503 of the API server",
        lambda: pod(status(503, "ServiceUnavailable", "etcdserver: leader changed")).refresh(),
        "transient",
        "firm",
        "kr8s/_api.py:206 ServerError with response (503)",
    )
    yield (
        "object was modified in between (409)",
        lambda: pod(
            status(
                409,
                "Conflict",
                'Operation cannot be fulfilled on pods "web": the object has been modified; '
                "please apply your changes to the latest version and try again",
            )
        ).patch({"spec": {}}),
        "transient",
        "firm",
        "kr8s/_api.py:202; Kubernetes API conventions: conflict, read again and retry",
    )
    yield (
        "object exists already (409)",
        lambda: pod(status(409, "AlreadyExists", 'pods "web" already exists')).create(),
        "terminal",
        "firm",
        "kr8s/_api.py:202; Kubernetes API conventions: AlreadyExists",
    )
    yield (
        "object is missing",
        lambda: pod(status(404, "NotFound", 'pods "web" not found')).refresh(),
        "terminal",
        "firm",
        "kr8s/_exceptions.py NotFoundError; _objects.py:450",
    )
    yield (
        "user may not create pods (403)",
        lambda: pod(
            status(
                403,
                "Forbidden",
                'pods is forbidden: User "a" cannot create resource "pods" in API group '
                '"" in the namespace "default"',
            )
        ).create(),
        "terminal",
        "firm",
        "kr8s/_api.py:202 after three new logins",
    )
