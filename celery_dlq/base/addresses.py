"""Brokers with several addresses. kombu connects to the next one of ``broker_url`` if one does not answer, so
the address of a connection may change, although the broker is the same."""

from __future__ import annotations

from typing import Any

from kombu.utils.url import maybe_sanitize_url

#: Seconds before all addresses are tried again.
_PAUSE_S = 0.2


def broker_of(connection: Any) -> str:
    """Names the broker of ``connection``, without passwords: by all of its addresses, in whatever order they
    are configured, by the master that it asks its sentinels for, and by its region on SQS. Does not
    connect."""
    if has_several(connection):
        name = ";".join(sorted(map(maybe_sanitize_url, connection.alt)))
    else:
        name = str(connection.as_uri())
    options = connection.transport_options
    within = options.get("master_name") or options.get("region")
    return f"{name} ({within})" if within else name


def has_several(connection: Any) -> bool:
    """Whether ``connection`` may fail over to another address."""
    return len(connection.alt) > 1


def reach(connection: Any, within_s: float) -> Any:
    """Connect ``connection`` by the first of its addresses that answers.

    :param within_s: seconds for each address.
    :raises OperationalError: none answers.
    """
    count = max(1, len(connection.alt))
    return connection.ensure_connection(
        max_retries=count, interval_start=_PAUSE_S, timeout=count * within_s
    )
