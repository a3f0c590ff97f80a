"""googlemaps: googlemaps/exceptions.py. ``status`` is a word of the service, not an HTTP status."""

from celery_dlq.classify.builtin.http import http_status, in_turn, otherwise, word
from celery_dlq.classify.table import network, probed, transient, within
from celery_dlq.model.states import Verdict

ROWS = (
    # developers.google.com/maps/documentation/geocoding: UNKNOWN_ERROR "may succeed if you try
    # again"; OVER_QUERY_LIMIT is about a rate, OVER_DAILY_LIMIT is not.
    probed(
        "googlemaps.status",
        in_turn(
            word("googlemaps.status", ("status",), passing={"OVER_QUERY_LIMIT", "UNKNOWN_ERROR"}),
            otherwise(Verdict.TERMINAL, "googlemaps.status"),
        ),
        "the word in status",
        "googlemaps.exceptions.ApiError",
    ),
    # googlemaps/client.py, _RETRIABLE_STATUSES.
    probed(
        "http.status",
        http_status(("status_code",), passing=frozenset({500})),
        "status_code",
        "googlemaps.exceptions.HTTPError",
    ),
    network("googlemaps.network", "googlemaps.exceptions.TransportError"),
    transient("googlemaps.network", *within("googlemaps.exceptions", "Timeout _RetriableRequest")),
)
