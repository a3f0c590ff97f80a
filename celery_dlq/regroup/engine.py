"""Regroups stored letters: plans it, or does it step by step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from celery_dlq.errors import OtherRecipe
from celery_dlq.model.fingerprint import FingerprintInput, fingerprint
from celery_dlq.model.regrouping import (
    Batch,
    Fate,
    Kept,
    Move,
    Regrouping,
    Ungrouped,
    fates_of,
)
from celery_dlq.regroup.frames import candidates, import_path
from celery_dlq.regroup.unknown import UnknownFrames
from celery_dlq.store.portion import Portion
from celery_dlq.worker.writing.grouping import Grouping

if TYPE_CHECKING:
    from celery_dlq.store import Store

#: Letters that are moved in one transaction, and groups that are settled in one.
LETTERS_AT_ONCE, GROUPS_AT_ONCE = 300, 50

#: What is known after some letters: how many of how many were looked at, and how many moved.
OnLooked = Callable[[int, int, int], object]


@dataclass(kw_only=True)
class Plan:
    """What a regrouping would do."""

    looked: int = 0
    moved: int = 0
    kept: Counter[Kept] = field(default_factory=Counter)
    #: The letters that go from each group to each other one.
    to: dict[str, Counter[str]] = field(default_factory=dict)
    #: The letters of each group afterwards.
    letters: Counter[str] = field(default_factory=Counter)

    def add(self, letters: Sequence[Ungrouped], batch: Batch) -> None:
        """Count some letters."""
        after = {one.task_id: one.after for one in batch.moves}
        self.letters.update(after.get(one.task_id, one.fingerprint) for one in letters)
        for one in batch.moves:
            self.to.setdefault(one.before, Counter())[one.after] += 1
        self.looked += batch.looked
        self.moved += len(batch.moves)
        self.kept.update(batch.kept)

    @property
    def fates(self) -> Mapping[str, Fate]:
        """The fate of each group that letters leave."""
        return fates_of(self.to, self.letters)


class Regrouper:
    """Applies a recipe to the stored letters.

    :param grouping: the recipe.
    """

    def __init__(self, store: Store, grouping: Grouping) -> None:
        self._store, self._grouping = store, grouping
        self._import_path = import_path()
        self._portion = Portion(LETTERS_AT_ONCE)
        #: The first problem that the recipe had, as words after its name.
        self.problem = ""

    @property
    def recipe(self) -> str:
        """The name of the recipe; empty for the built-in one."""
        return self._grouping.recipe

    def plan(self, on_looked: OnLooked) -> Plan:
        """What :meth:`run` would do. Nothing is changed.

        :raises StoreError: the store failed.
        """
        plan, above, total = Plan(), 0, self._store.regroupings.count()
        while letters := self._store.regroupings.letters(above=above, limit=LETTERS_AT_ONCE):
            batch = self._judge(letters)
            plan.add(letters, batch)
            above = batch.last
            on_looked(plan.looked, max(total, plan.looked), plan.moved)
        return plan

    def begin(self, *, who: str, why: str, detached: bool = False) -> Regrouping:
        """Begin a regrouping of all letters that there are; audited. One by the same recipe that is under way
        continues; for one by another recipe, the decisions about the groups that it emptied follow now.

        :raises StoreError: the store failed.
        """
        last = self._store.regroupings.last()
        if last is not None and not last.is_over and last.recipe != self.recipe:
            self._settle_all(last)
        return self._store.regroupings.begin(
            recipe=self.recipe, who=who, why=why, detached=detached
        )

    def run(
        self,
        progress: Regrouping,
        on_looked: OnLooked | None = None,
        should_stop: Callable[[], bool] = lambda: False,
    ) -> Regrouping:
        """Do a regrouping, or what is left of it; returns how far it has come.

        :param should_stop: asked before each step; another call continues it later.
        :raises OtherRecipe: it was begun with another recipe.
        :raises StoreError: the store failed. The steps before that stay done.
        """
        # Counting reads all letters, and workers call this once a second.
        total = 0 if on_looked is None else self._store.regroupings.count()
        while not progress.is_over and not should_stop():
            progress = self.step(progress)
            if on_looked is not None:
                on_looked(progress.looked, max(total, progress.looked), progress.moved)
        return progress

    def step(self, progress: Regrouping) -> Regrouping:
        """Do the next step of a regrouping.

        :raises OtherRecipe: it was begun with another recipe.
        :raises StoreError: the store failed.
        """
        if progress.recipe != self.recipe:
            raise OtherRecipe
        return self._portion.attempt(lambda size: self._step(progress, size))

    def _step(self, progress: Regrouping, size: int) -> Regrouping:
        letters = self._store.regroupings.letters(
            above=progress.above, until=progress.until, limit=size
        )
        if letters:
            return self._store.regroupings.move(progress, self._judge(letters))
        return self._store.regroupings.settle(progress, groups=GROUPS_AT_ONCE)

    def _settle_all(self, progress: Regrouping) -> None:
        while not progress.is_over:
            progress = self._store.regroupings.settle(progress, groups=GROUPS_AT_ONCE)

    def _judge(self, letters: Sequence[Ungrouped]) -> Batch:
        """The new groups of some letters."""
        frames = self._frames_of(letters)
        moves, kept = list[Move](), Counter[Kept]()
        for one in letters:
            after = self._regrouped(one, frames[one.task_id])
            if isinstance(after, Kept):
                kept[after] += 1
            elif after != one.fingerprint:
                moves.append(_move(one, after))
        return Batch(last=letters[-1].id, looked=len(letters), moves=tuple(moves), kept=kept)

    def _frames_of(self, letters: Sequence[Ungrouped]) -> dict[str, tuple[str, ...] | None]:
        """The frames of each letter; None if they are unknown. They are known if the built-in recipe makes of
        them the fingerprint of a group that there is: no others do that."""
        found = {one.task_id: _prints(one, self._import_path) for one in letters}
        known = self._store.regroupings.known(
            {name for prints in found.values() for name in prints}
        )
        return {one.task_id: _chosen(found[one.task_id], one, known) for one in letters}

    def _regrouped(self, letter: Ungrouped, frames: tuple[str, ...] | None) -> str | Kept:
        """The new fingerprint of a letter, or why it keeps the one that it has."""
        unknown = UnknownFrames()
        failure = _input(letter, unknown if frames is None else frames)
        found = self._grouping.ask(failure)
        if unknown.were_read:
            return Kept.FRAMES
        if found.problem:
            self.problem = self.problem or found.problem
            return Kept.RECIPE
        if found.fingerprint:
            return found.fingerprint
        return Kept.FRAMES if frames is None else fingerprint(failure)


def _input(letter: Ungrouped, frames: Sequence[str]) -> FingerprintInput:
    return FingerprintInput(
        task=letter.task,
        exception_type=letter.exception_type,
        frames=frames,
        message=letter.message,
    )


def _prints(letter: Ungrouped, import_path: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
    """The built-in fingerprints that a letter may have had, the likeliest first, with the frames of each."""
    found = candidates(letter.traceback, import_path)
    return {fingerprint(_input(letter, frames)): frames for frames in found}


def _chosen(
    prints: Mapping[str, tuple[str, ...]], letter: Ungrouped, known: Set[str]
) -> tuple[str, ...] | None:
    if letter.fingerprint in prints:
        return prints[letter.fingerprint]
    # A letter without frames may have the same message, so it says nothing about one that has frames.
    its = [frames for name, frames in prints.items() if name in known]
    return next((frames for frames in its if frames or len(prints) == 1), None)


def _move(letter: Ungrouped, after: str) -> Move:
    return Move(
        task_id=letter.task_id,
        failed_at=letter.last_failed_at,
        before=letter.fingerprint,
        after=after,
        message=letter.message,
    )
