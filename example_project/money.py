"""Currencies and rounding."""

from decimal import ROUND_HALF_UP, Decimal

from example_project.release import MENDED

CURRENCIES = frozenset({"EUR", "GBP", "USD"})

#: What partners write instead. Release 1 did not know that one of them writes EURO.
ALIASES = {"EURO": "EUR"} if MENDED else {}


class UnknownCurrency(ValueError):
    """No currency the shop trades in."""


def currency(code: str) -> str:
    """The ISO 4217 code meant by ``code``.

    :raises UnknownCurrency: there is none.
    """
    known = ALIASES.get(code, code)
    if known not in CURRENCIES:
        raise UnknownCurrency(f"{code!r} is none of {', '.join(sorted(CURRENCIES))}")
    return known


def cents(amount: Decimal) -> Decimal:
    """``amount``, rounded commercially to two places."""
    return amount.quantize(Decimal("0.01"), rounding=ROUND_HALF_UP)
