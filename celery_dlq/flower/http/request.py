"""Read the arguments of a request unchanged: Flower's methods escape them, and Tornado's strip them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tornado.httputil import HTTPServerRequest

from celery_dlq.errors import FilterError

#: Bytes of JSON at most.
BODY_LIMIT = 1_048_576


def asked(request: HTTPServerRequest) -> dict[str, list[str]]:
    """The names and values of the query string.

    :raises FilterError: they are not UTF-8.
    """
    return _texts(request.query_arguments)


def sent(request: HTTPServerRequest) -> dict[str, list[str]]:
    """The names and values of a form.

    :raises FilterError: they are not UTF-8.
    """
    return _texts(request.body_arguments)


def sent_json(request: HTTPServerRequest) -> dict[str, list[str]]:
    """The names and values of a JSON object, like those of a form: numbers as text, lists as several values,
    true as ``1``, false and null as no value.

    :raises FilterError: the body is not a JSON object, or has other values.
    """
    if request.body and not request.headers.get("Content-Type", "").startswith("application/json"):
        raise FilterError("The body must be JSON, with Content-Type: application/json.")
    return {name: list(_values(name, value)) for name, value in _object(request.body).items()}


def _object(body: bytes) -> dict[str, Any]:
    if len(body) > BODY_LIMIT:
        raise FilterError(
            f"The body has more than {BODY_LIMIT:,} bytes; use a filter instead of ids."
        )
    try:
        found = json.loads(body or b"{}")
    except (ValueError, RecursionError) as error:
        raise FilterError(f"The body is not valid JSON: {error}.") from error
    if not isinstance(found, dict):
        raise FilterError('The body must be a JSON object, such as {"task": "shop.charge"}.')
    return found


def _values(name: str, value: Any) -> Iterator[str]:
    for item in value if isinstance(value, list) else [value]:
        if item is True:
            yield "1"
        elif isinstance(item, (str, int, float)) and item is not False:
            yield str(item)
        elif item is not None and item is not False:
            raise FilterError(
                f"{name} must be a text, a number, true or false, or a list of texts."
            )


def first(given: Mapping[str, Sequence[str]], name: str, default: str = "") -> str:
    """The first value of ``name``."""
    values = given.get(name) or (default,)
    return values[0]


def _texts(arguments: Mapping[str, Sequence[bytes]]) -> dict[str, list[str]]:
    try:
        return {name: [value.decode() for value in values] for name, values in arguments.items()}
    except UnicodeDecodeError as error:
        raise FilterError("A value is not UTF-8; percent-encode it as UTF-8.") from error
