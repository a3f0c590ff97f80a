"""A client of a bank, with errors of its own."""


class Error(Exception):
    """The bank said something else than yes."""

    code = ""


class Busy(Error):
    """Another time."""


class Closed(Error):
    """It is night."""


class Refused(Error):
    """It does not want to."""


class CardDeclined(Refused):
    """The customer has no money."""


def charge(order_id, **options):
    """Take the money for an order."""


def rate(currency):
    """Euros for one unit of ``currency``."""
    return {"EUR": 1.0, "USD": 0.9}[currency]
