"""The shop at night, with no person at a desk: one handler repairs messages, one automatic redrive sends
messages back.

``SHOP_NIGHT=1`` switches it on, so that the demo can show a day without it first.
"""

import os

from celery_dlq import (
    AutoRedrive,
    DeadLetterQueue,
    Filter,
    HandlerLetter,
    Leave,
    Reason,
    Redrive,
    Timetable,
)
from example_project.celery_app import app

VARIABLE = "SHOP_NIGHT"

#: What partners write instead of EUR.
_EUROS = frozenset({"EURO", "EUROS"})

if os.environ.get(VARIABLE):
    app.conf.dlq_auto_redrive = [
        AutoRedrive(
            "tax-offices",
            where=Filter(task="charge", reason=Reason.EXHAUSTED),
            # Short times for a demo; after 15 minutes, and every 5 minutes, suits real services.
            after_s=1,
            when=Timetable(every_s=1),
            owner="payments",
        )
    ]

    @DeadLetterQueue.of(app).handler(where=Filter(task="charge", exception="UnknownCurrency"))
    def in_euros(letter: HandlerLetter) -> Redrive | Leave:
        """Send an order back in the currency that the partner meant."""
        order, *others = letter.args
        if order["currency"] not in _EUROS:
            return Leave()
        return Redrive(args=[{**order, "currency": "EUR"}, *others])
