"""zeep: zeep/exceptions.py. A SOAP fault is the application's answer, whatever its status."""

from celery_dlq.classify.builtin.http import http_status
from celery_dlq.classify.table import probed, terminal

ROWS = (
    probed(
        "http.status",
        http_status(("status_code",)),
        "status_code",
        "zeep.exceptions.TransportError",
    ),
    terminal("soap.fault", "zeep.exceptions.Error"),
)
