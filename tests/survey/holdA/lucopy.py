"""LucoPy: the Luco data quality service."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent / "lib"))

import datetime  # noqa: E402

from LucoPy import LucoApi  # noqa: E402
import holda_stub as stub  # noqa: E402

LIBRARY = "lucopy==1.3.14"


class Identity:
    def generate_token(self):
        return "token", datetime.datetime.now() + datetime.timedelta(hours=1)


def overview(address, timeout=20):
    with stub.rerouted(address):
        return LucoApi(
            base_url="https://luco.example.com/api", identity=Identity(), timeout=timeout
        ).export_slot_sequences([1])


def sign_in(address):
    with stub.rerouted(address):
        return LucoApi(
            base_url="https://luco.example.com/api",
            tenant_id="t",
            client_id="c",
            client_secret="s",
            resource_id="r",
        ).export_slot_sequences([1])


def cases():
    yield (
        "the service is unavailable",
        lambda: overview(stub.answer(503, "Service Unavailable")),
        "transient",
        "firm",
        "ApiCore.py __check_error: ApiException 'status :: text'",
    )
    yield (
        "too many requests",
        lambda: overview(stub.answer(429, "Too many requests")),
        "transient",
        "firm",
        "ApiCore.py __check_error: ApiException 'status :: text'",
    )
    yield (
        "no answer in time",
        lambda: overview(stub.silent(), 0.3),
        "transient",
        "firm",
        "ApiCore.py get_request: timeout",
    )
    yield (
        "the token service refuses the connection",
        lambda: sign_in(stub.closed()),
        "transient",
        "soft",
        "ApiCore.py check_auth: AuthException whatever went wrong, here a refused connection",
    )
    yield (
        "wrong client secret",
        lambda: sign_in(stub.answer(401, {"error": "invalid_client"})),
        "terminal",
        "firm",
        "ApiCore.py check_auth: AuthException 'Please check authentication credentials'",
    )
    yield (
        "no such slot sequence",
        lambda: overview(stub.answer(404, "Not found")),
        "terminal",
        "firm",
        "ApiCore.py __check_error: ApiException 'status :: text'",
    )
    yield (
        "no rights",
        lambda: overview(stub.answer(403, "Forbidden")),
        "terminal",
        "firm",
        "ApiCore.py __check_error",
    )
    yield (
        "address without https",
        lambda: LucoApi(base_url="http://luco.example.com"),
        "terminal",
        "firm",
        "LucoApi.py:42 ApiException: API base URL must use https",
    )
