"""Currencies and rounding."""

from decimal import ROUND_HALF_UP, Decimal

from example_project.release import FIXED

CURRENCIES = frozenset({"EUR", "GBP", "USD"})

#: Other spellings that partners use. Release 1 did not know that one of them writes EURO.
ALIASES = {"EURO": "EUR"} if FIXED else {}


class UnknownCurrency(ValueError):
    """The shop does not trade in this currency."""


def currency(code: str) -> str:
    """The ISO 4217 code meant by ``code``.

    :raises UnknownCurrency: ``code`` means no currency of the shop.
    """
    known = ALIASES.get(code, code)
    if known not in CURRENCIES:
        raise UnknownCurrency(f"{code!r} is not one of {', '.join(sorted(CURRENCIES))}")
    return known


def cents(amount: Decimal) -> Decimal:
    """``amount``, rounded commercially to two places."""
    return amount.quantize(Decimal("0.01"), rounding=ROUND_HALF_UP)
