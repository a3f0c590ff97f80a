"""Signatures as in Standard Webhooks 1.0 (https://github.com/standard-webhooks/standard-webhooks), which has
libraries to verify them."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Mapping

from celery_dlq.errors import SettingsError

_PREFIX = "whsec_"
#: Size of a secret in bytes, according to the specification.
_LEAST, _MOST = 24, 64


def key_of(secret: str) -> bytes:
    """The key that ``secret`` stands for.

    :raises SettingsError: it is not ``whsec_`` and 24 to 64 bytes in base64.
    """
    try:
        key = base64.b64decode(secret.removeprefix(_PREFIX), validate=True)
    except (binascii.Error, ValueError, AttributeError):
        key = b""
    if not _LEAST <= len(key) <= _MOST:
        raise SettingsError(
            f"The secret of a webhook is {_PREFIX!r} and {_LEAST} to {_MOST} bytes in base64; make one: "
            f"echo {_PREFIX}$(openssl rand -base64 32)"
        )
    return key


def signed(key: bytes, message_id: str, now: float, body: bytes) -> Mapping[str, str]:
    """The headers that sign ``body``.

    :param now: the time of sending, in seconds since 1970.
    """
    timestamp = str(int(now))
    contents = b".".join((message_id.encode(), timestamp.encode(), body))
    digest = hmac.new(key, contents, hashlib.sha256).digest()
    return {
        "Webhook-Id": message_id,
        "Webhook-Timestamp": timestamp,
        "Webhook-Signature": f"v1,{base64.b64encode(digest).decode()}",
    }
