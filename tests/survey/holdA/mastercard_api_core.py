"""mastercard-api-core: the core of the Mastercard SDKs."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent / "lib"))

from mastercardapicore import (
    APIException,
    Authentication,
    BaseObject,
    Config,
    OperationConfig,
    OperationMetadata,
)  # noqa: E402
from mastercardapicore import RequestMap  # noqa: E402
import holda_stub as stub  # noqa: E402

LIBRARY = "mastercard-api-core==1.4.12"
DOC = "docs: developer.mastercard.com, error codes of the gateway: "


class NoSignature(Authentication):
    def signRequest(self, uri, request):
        return request


class Merchant(BaseObject):
    host = ""

    def getOperationConfig(self, uuid):
        return OperationConfig("/merchants/v1/merchant", "query", [], [])

    def getOperationMetadata(self):
        return OperationMetadata("1.0", Merchant.host, jsonNative=True)


def query(address, authentication=NoSignature(), timeout=None):
    Config.setAuthentication(authentication)
    Config.setReadTimeout(timeout)
    Merchant.host = address
    request = RequestMap()
    request.set("id", "1")
    return Merchant.execute("uuid", Merchant(request))


def error(status, reason, text, recoverable=False):
    """As in core/controller.py handleResponse; its json.loads(encoding=…) fails on Python 3.9 and later."""
    raise APIException(
        "Internal Server Error",
        status,
        {
            "Errors": {
                "Error": [
                    {
                        "Source": "Gateway",
                        "ReasonCode": reason,
                        "Description": text,
                        "Recoverable": recoverable,
                        "Details": None,
                    }
                ]
            }
        },
    )


def cases():
    yield (
        "the gateway is unavailable",
        lambda: query(stub.answer(503)),
        "transient",
        "firm",
        "core/controller.py handleResponse: APIException with http_status 503",
    )
    yield (
        "too many requests",
        lambda: query(stub.answer(429)),
        "transient",
        "firm",
        "core/controller.py handleResponse: APIException with http_status 429",
    )
    yield (
        "no answer in time",
        lambda: query(stub.silent(), timeout=0.3),
        "transient",
        "firm",
        "Config.setReadTimeout, requests",
    )
    yield (
        "connection refused",
        lambda: query(stub.closed()),
        "transient",
        "firm",
        "core/controller.py execute: requests' error",
    )
    yield (
        "system error of the gateway",
        lambda: error(500, "SYSTEM_ERROR", "Unknown Error", True),
        "transient",
        "soft",
        "constructed as in core/controller.py handleResponse; a 500, Recoverable (a retry may help)",
    )
    yield (
        "wrong key",
        lambda: error(401, "AUTHENTICATION_FAILED", "Unauthorized - Access Not Granted"),
        "terminal",
        "firm",
        "constructed as in core/controller.py handleResponse; " + DOC + "access not granted",
    )
    yield (
        "bad request",
        lambda: error(400, "INVALID_INPUT_VALUE", "The supplied field: 'x' is of an unsupported format"),
        "terminal",
        "firm",
        "constructed as in core/controller.py handleResponse; 400",
    )
    yield (
        "no authentication is set",
        lambda: query(stub.closed(), None),
        "terminal",
        "firm",
        "core/controller.py __check: no or incorrect authentication has been configured",
    )
