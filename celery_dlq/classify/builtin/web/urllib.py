"""``http.client``, ``urllib`` and ``xmlrpc`` of the standard library."""

from celery_dlq.classify.builtin.http import http_status
from celery_dlq.classify.table import probed, terminal, transient, within, wrapper

ROWS = (
    # http/client.py; the other HTTPExceptions are misuse or an answer that is no HTTP.
    transient("http.closed", *within("http.client", "RemoteDisconnected IncompleteRead")),
    terminal("http.url", "http.client.InvalidURL"),
    terminal("http.protocol", "http.client.HTTPException"),
    # urllib/error.py.
    probed("http.status", http_status(("code",)), "the status in code", "urllib.error.HTTPError"),
    transient("http.closed", "urllib.error.ContentTooShortError"),
    wrapper("urllib.reason", "the exception in reason", "urllib.error.URLError"),
    # xmlrpc/client.py. The code of a fault is the application's own number.
    probed(
        "http.status",
        http_status(("errcode",)),
        "the status in errcode",
        "xmlrpc.client.ProtocolError",
    ),
    terminal("xmlrpc.fault", *within("xmlrpc.client", "Fault ResponseError")),
)
