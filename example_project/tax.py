"""The client of the tax service. Its errors are urllib's own: celery_dlq's rules know them."""

import json
import os
from decimal import Decimal
from urllib.request import urlopen

URL_VARIABLE = "SHOP_TAX_URL"

_DEFAULT_URL = "http://127.0.0.1:8765"
_TIMEOUT_S = 5


def rate(country: str) -> Decimal:
    """The rate of value-added tax in ``country``, as a fraction.

    :raises urllib.error.HTTPError: the service answered with an error.
    :raises OSError: the service did not answer.
    """
    base = os.environ.get(URL_VARIABLE, _DEFAULT_URL)
    with urlopen(f"{base}/rates/{country}", timeout=_TIMEOUT_S) as answer:
        return Decimal(json.load(answer)["rate"])
