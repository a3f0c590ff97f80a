"""neverbounce-sdk: verification of mail addresses."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent / "lib"))

import neverbounce_sdk  # noqa: E402
import holda_stub as stub  # noqa: E402

LIBRARY = "neverbounce-sdk==4.3.0"
DOC = "docs: developers.neverbounce.com/reference/error-handling: "


def verify(address, **kw):
    with stub.rerouted(address):
        return neverbounce_sdk.client(api_key="secret", **kw).single_check("a@example.com")


def says(status, message):
    return verify(stub.answer(200, {"status": status, "message": message, "execution_time": 5}))


def cases():
    yield (
        "too many requests",
        lambda: says("throttle_triggered", "Too many requests"),
        "transient",
        "firm",
        "exceptions.py ThrottleTriggered docstring: try again shortly",
    )
    yield (
        "the service is temporarily unavailable",
        lambda: says("temp_unavail", "Something went wrong, try again"),
        "transient",
        "firm",
        DOC + "temp_unavail: a partial service interruption; core.py makes a GeneralException of it",
    )
    yield (
        "503",
        lambda: verify(stub.answer(503, "busy")),
        "transient",
        "firm",
        DOC + "5xx: attempt the request again",
    )
    yield (
        "no answer in time",
        lambda: verify(stub.silent(), timeout=0.3),
        "transient",
        "firm",
        "core.py: timeout of requests",
    )
    yield (
        "the answer is no JSON",
        lambda: verify(stub.answer(200, "<html>")),
        "transient",
        "soft",
        "core.py _check_response: 'Try the request again'",
    )
    yield (
        "bad key",
        lambda: says("auth_failure", "Invalid API key"),
        "terminal",
        "firm",
        "exceptions.py AuthFailure docstring: credentials are bad",
    )
    yield (
        "missing parameter",
        lambda: says("general_failure", "Missing required parameter 'email'"),
        "terminal",
        "firm",
        "exceptions.py GeneralException docstring: a non recoverable API error",
    )
    yield (
        "source not allowed",
        lambda: says("bad_referrer", "Untrusted referrer"),
        "terminal",
        "firm",
        "exceptions.py BadReferrer docstring: unauthorized source",
    )
