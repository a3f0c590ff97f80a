"""pysnc: a stub of a ServiceNow instance."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent / "lib"))
import holdb_stub as stub  # noqa: E402

LIBRARY = "pysnc==1.2.1"


INSTANCE = "https://dev00000.service-now.com"


def client(**kwargs):
    from pysnc import ServiceNowClient

    return ServiceNowClient(INSTANCE, ("user", "password"), **kwargs)


def query(base, **kwargs):
    with stub.no_sleep(), stub.requests_to(base):
        client(**kwargs).GlideRecord("incident").query()


def get(base):
    with stub.requests_to(base):
        c = client(auto_retry=False)
        c.table_api.get(c.GlideRecord("incident"), "0" * 32)


def token(base):
    from pysnc.auth import ServiceNowClientCredentialsFlow

    with stub.requests_to(base):
        ServiceNowClientCredentialsFlow("id", "secret")._get_access_token(INSTANCE)


def error(status, message, detail=""):
    import json

    return stub.answer(
        status, json.dumps({"error": {"message": message, "detail": detail}, "status": "failure"})
    )


def cases():
    yield (
        "rate limit (429) after all retries",
        lambda: query(error(429, "Rate limit exceeded")),
        "transient",
        "firm",
        "pysnc/client.py:80 status_forcelist=[429, 500, 502, 503]: requests' RetryError",
    )
    yield (
        "503 without the retries of the client",
        lambda: query(stub.answer(503, "<html>503 Service Unavailable</html>"), auto_retry=False),
        "transient",
        "firm",
        "pysnc/client.py:172 RequestException(response.text); 503 is in its own retry list",
    )
    yield (
        "connection refused",
        lambda: query(stub.refused()),
        "transient",
        "firm",
        "requests' ConnectionError passes through pysnc/client.py _send",
    )
    yield (
        "query exceeds its execution time",
        lambda: query(
            stub.answer(
                200,
                '{"error": {"message": "Transaction cancelled: maximum execution time exceeded", '
                '"detail": "Check logs for error trace"}}',
            ),
            auto_retry=False,
        ),
        "transient",
        "soft",
        "pysnc/record.py:593 RequestException 'Maximum execution time exceeded. Lower batch size'",
    )
    yield (
        "token endpoint refuses the connection",
        lambda: token(stub.refused()),
        "transient",
        "firm",
        "pysnc/auth.py:115 AuthenticationException 'Failed to connect to token endpoint'",
    )
    yield (
        "wrong password (401)",
        lambda: query(error(401, "User Not Authenticated", "Required to provide Auth information")),
        "terminal",
        "firm",
        "pysnc/client.py:169 AuthenticationException",
    )
    yield (
        "no role for the table (403)",
        lambda: query(
            error(
                403,
                "Insufficient rights to query records",
                "Field(s) present in the query do not have permission to be read",
            )
        ),
        "terminal",
        "firm",
        "pysnc/client.py:167 RoleException",
    )
    yield (
        "record is missing (404)",
        lambda: get(error(404, "No Record found", "Record doesn't exist or ACL restricts")),
        "terminal",
        "firm",
        "pysnc/client.py:165 NotFoundException",
    )
