"""aiohttp: aiohttp/client_exceptions.py, aiohttp/http_exceptions.py, aiohttp/http_websocket.py."""

from celery_dlq.classify.builtin.http import http_status
from celery_dlq.classify.table import network, probed, terminal, transient, within

ROWS = (
    probed(
        "http.status",
        http_status(("status",)),
        "status",
        "aiohttp.client_exceptions.ClientResponseError",
    ),
    network("http.network", "aiohttp.client_exceptions.ClientConnectionError"),
    # ClientPayloadError stays without a look at its cause, which has a code of 400 that is about
    # the parser.
    transient(
        "http.closed",
        *within(
            "aiohttp.client_exceptions",
            "ServerDisconnectedError ServerTimeoutError ClientPayloadError",
        ),
    ),
    terminal(
        "tls.certificate",
        *within(
            "aiohttp.client_exceptions",
            "ClientConnectorCertificateError ServerFingerprintMismatch",
        ),
    ),
    terminal("http.url", *within("aiohttp.client_exceptions", "InvalidURL NonHttpUrlClientError")),
    terminal(
        "http.usage",
        *within("aiohttp.client_exceptions", "TooManyRedirects RedirectClientError"),
        *within("aiohttp.client_exceptions", "WSMessageTypeError"),
    ),
    # The parser's own code, 400, is no answer of a server.
    terminal("http.protocol", "aiohttp.http_exceptions.HttpProcessingError"),
    # Their code is that of a WebSocket close frame.
    terminal(
        "websocket.protocol",
        *within("aiohttp.http_websocket", "WebSocketError WSHandshakeError"),
        *within("aiohttp._websocket.models", "WebSocketError WSHandshakeError"),
    ),
)
