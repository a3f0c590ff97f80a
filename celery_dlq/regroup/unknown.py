"""Stands for frames that are unknown."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn


class UnknownFrames(Sequence[str]):
    """Frames that are unknown. It remembers whether a recipe has read them, even if the recipe catches the
    error; the result does not count then."""

    def __init__(self) -> None:
        self.were_read = False

    def __getitem__(self, place: Any) -> NoReturn:
        self._refuse()

    def __len__(self) -> NoReturn:
        self._refuse()

    def __eq__(self, other: object) -> NoReturn:
        self._refuse()

    def __hash__(self) -> NoReturn:
        self._refuse()

    def _refuse(self) -> NoReturn:
        self.were_read = True
        raise LookupError("the app frames of this letter are unknown")
