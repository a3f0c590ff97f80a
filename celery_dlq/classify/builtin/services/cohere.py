"""Cohere: cohere/core/api_error.py."""

from celery_dlq.classify.builtin.http import http_status
from celery_dlq.classify.table import probed, terminal

ROWS = (
    # cohere/core/http_client.py, _should_retry(): 408, 409 and 429 are retried.
    probed(
        "http.status",
        http_status(("status_code",), passing=frozenset({409})),
        "status_code",
        "cohere.core.api_error.ApiError",
    ),
    terminal("cohere.content", "cohere.core.parse_error.ParsingError"),
)
