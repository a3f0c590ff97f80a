"""How many letters one transaction takes."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import TypeVar

from celery_dlq.errors import StoreUnavailable

T = TypeVar("T")

#: The fewest letters that are still tried when transactions take too long.
FEWEST = 25


class Portion:
    """The number of letters that one transaction takes. It becomes smaller when a transaction takes too long,
    and stays so.

    :param size: the number at the beginning.
    """

    def __init__(self, size: int) -> None:
        self.size = size

    def attempt(self, transaction: Callable[[int], T]) -> T:
        """The result of ``transaction``, which is given the number of letters to take. It is tried again with
        fewer letters if the store does not answer in time.

        :raises StoreError: the store failed, or does not answer in time for the fewest letters.
        """
        while self.size > FEWEST:
            with contextlib.suppress(StoreUnavailable):
                return transaction(self.size)
            self.size = max(FEWEST, self.size // 4)
        return transaction(self.size)
