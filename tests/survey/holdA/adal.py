"""adal: tokens of Azure AD."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent / "lib"))

import adal  # noqa: E402
from adal.self_signed_jwt import _sign_jwt  # noqa: E402
import holda_stub as stub  # noqa: E402

LIBRARY = "adal==1.2.7"
AAD = "docs: learn.microsoft.com/entra/identity-platform/reference-error-codes: "


def token(address, **kw):
    context = adal.AuthenticationContext("https://login.example.com/tenant", validate_authority=False, **kw)
    with stub.rerouted(address):
        return context.acquire_token_with_client_credentials("https://graph.example.com", "client", "secret")


def oauth(status, error, text, codes):
    return token(
        stub.answer(
            status,
            {
                "error": error,
                "error_description": text,
                "error_codes": codes,
                "trace_id": "0f3a",
                "correlation_id": "77aa",
            },
        )
    )


def unknown_host():
    with stub.no_such_host():
        context = adal.AuthenticationContext("https://login.nowhere.example/tenant", validate_authority=False)
        return context.acquire_token_with_client_credentials("r", "c", "s")


def cases():
    yield (
        "too many token requests",
        lambda: token(stub.answer(429, "", Retry_After="30")),
        "transient",
        "firm",
        "adal/oauth2_client.py:278: 429 raises requests' HTTPError; rate limit with Retry-After",
    )
    yield (
        "the token service is too busy",
        lambda: oauth(
            503,
            "temporarily_unavailable",
            "AADSTS90033: A transient error has occurred. Please try again.",
            [90033],
        ),
        "transient",
        "firm",
        AAD + "90033 MsodsServiceUnavailable, temporarily_unavailable: retry the request",
    )
    yield (
        "the token service does not answer in time",
        lambda: token(stub.silent(), timeout=0.3),
        "transient",
        "firm",
        "AuthenticationContext docstring: how long to wait for the server to send data before giving up",
    )
    yield (
        "connection refused",
        lambda: token(stub.closed()),
        "transient",
        "firm",
        "adal/oauth2_client.py:271: raise as it is",
    )
    yield (
        "wrong client secret",
        lambda: oauth(401, "invalid_client", "AADSTS7000215: Invalid client secret provided.", [7000215]),
        "terminal",
        "firm",
        AAD + "7000215 invalid client secret",
    )
    yield (
        "wrong password",
        lambda: oauth(
            400,
            "invalid_grant",
            "AADSTS50126: Error validating credentials due to invalid username or password.",
            [50126],
        ),
        "terminal",
        "firm",
        AAD + "50126 InvalidUserNameOrPassword",
    )
    yield (
        "certificate of the client is not a key",
        lambda: _sign_jwt({"alg": "RS256"}, {"a": 1}, "no key"),
        "terminal",
        "firm",
        "adal/self_signed_jwt.py:55: Invalid Certificate",
    )
    yield ("unknown host of the authority", unknown_host, "terminal", "firm", "the host name does not exist")
