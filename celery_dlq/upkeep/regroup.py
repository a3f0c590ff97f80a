"""Groups stored letters by today's recipe and aliases: plans it, or does it step by step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from celery_dlq.model.fingerprint import VERSION
from celery_dlq.model.group import Judged, Waiting, heir_of, home, place_name
from celery_dlq.store.base import Portion
from celery_dlq.worker.grouping import Grouping

if TYPE_CHECKING:
    from celery_dlq.store import Store

#: Letters that are moved in one transaction; and groups, and numbers of letters, that are read together.
LETTERS_AT_ONCE, GROUPS_AT_ONCE, IDS_AT_ONCE = 500, 200, 20_000

#: Called with the number of letters that were looked at, and that were moved, by one step.
OnStep = Callable[[int, int], object]


@dataclass(frozen=True, kw_only=True)
class Fate:
    """The groups to which the letters of one group would go."""

    group: Waiting
    to: Mapping[str, int]

    @property
    def leaving(self) -> int:
        """The letters that would leave the group."""
        return sum(self.to.values()) - self.to.get(self.group.fingerprint, 0)


class Regrouper:
    """Applies a recipe to stored letters, and moves them to the groups in which they are counted.

    :param grouping: the recipe.
    """

    def __init__(self, store: Store, grouping: Grouping) -> None:
        self._store, self._grouping = store, grouping
        self._portion = Portion(LETTERS_AT_ONCE)
        #: Letters whose grounds are unknown, and letters for which the recipe failed: they keep their groups.
        self.unknown: int = 0
        self.failed: int = 0
        #: The first problem that the recipe had, as words after its name.
        self.problem: str = ""

    @property
    def recipe(self) -> str:
        """The name of the recipe, with its version if it is the built-in one."""
        return self._grouping.recipe or f"built-in {VERSION}"

    def plan(self, on_step: OnStep) -> Iterator[Fate]:
        """The fate of each group by the recipe. Nothing is changed.

        :raises StoreError: the store failed.
        """
        planned: dict[str, str] = {}
        for group in self._store.regroupings.all():
            counts = Counter[tuple[str, str]]()
            for letters in self._pages(group.fingerprint):
                counts.update((one.raw, one.after.place) for one in map(self._judged, letters))
                on_step(len(letters), 0)
            yield Fate(group=group, to=self._targets(group.fingerprint, counts, planned))

    def begin(self, *, who: str, why: str) -> int:
        """Mark all groups, so that the recipe is applied to their letters; audited. Returns the number of
        letters.

        :raises StoreError: the store failed.
        """
        return self._store.regroupings.begin(recipe=self.recipe, who=who, why=why)

    def run(
        self,
        on_step: OnStep = lambda looked, moved: None,
        should_stop: Callable[[], bool] = lambda: False,
    ) -> bool:
        """Move the letters of the groups that wait for this recipe, or for none; returns whether no such
        group is left.

        :param should_stop: asked before each step; another call, also of another process, continues.
        :raises StoreError: the store failed. The steps before that stay done.
        """
        while groups := self._store.regroupings.next(self.recipe, limit=GROUPS_AT_ONCE):
            for group in groups:
                if not self._work_off(group, on_step, should_stop):
                    return False
        return True

    def _work_off(self, group: Waiting, on_step: OnStep, should_stop: Callable[[], bool]) -> bool:
        """Look at all letters of a group; returns False if that was stopped."""
        ids: Sequence[int] = ()
        is_all = False
        while ids or not is_all:
            if should_stop():
                return False
            if not ids:
                ids = self._ids(group.fingerprint, group.above)
                is_all = len(ids) < IDS_AT_ONCE
            taken, moved = self._portion.attempt(partial(self._step, group, ids, is_all))
            on_step(len(taken), moved)
            group = replace(group, above=taken[-1] if taken else group.above)
            ids = ids[len(taken) :]
        return True

    def _step(
        self, group: Waiting, ids: Sequence[int], is_all: bool, size: int
    ) -> tuple[Sequence[int], int]:
        taken = ids[:size]
        letters = self._store.regroupings.letters(group.fingerprint, taken)
        moved = self._store.regroupings.move(
            group,
            [*map(self._judged, letters)] if group.recipe else letters,
            last=taken[-1] if taken else group.above,
            is_last=is_all and len(taken) == len(ids),
        )
        return taken, moved

    def _pages(self, fingerprint: str) -> Iterator[Sequence[Judged]]:
        above = 0
        while ids := self._ids(fingerprint, above):
            for first in range(0, len(ids), LETTERS_AT_ONCE):
                these = ids[first : first + LETTERS_AT_ONCE]
                yield self._store.regroupings.letters(fingerprint, these)
            above = ids[-1]

    def _ids(self, fingerprint: str, above: int) -> Sequence[int]:
        return self._store.regroupings.ids(fingerprint, above=above, limit=IDS_AT_ONCE)

    def _judged(self, one: Judged) -> Judged:
        """A letter with the fingerprint of the recipe. If the recipe gives none, the letter keeps its own."""
        if one.letter.grounds is None:
            self.unknown += 1
            return one
        after, problem = self._grouping.regrouped(one.letter)
        if problem:
            self.failed += 1
            self.problem = self.problem or problem
            return one
        return Judged(id=one.id, letter=one.letter, after=after)

    def _targets(
        self, group: str, counts: Counter[tuple[str, str]], planned: dict[str, str]
    ) -> Mapping[str, int]:
        """The groups of these letters, by number, as :meth:`run` would choose them.

        :param planned: the homes that earlier groups of the plan have taken; this one adds its own.
        """
        names = {name for raw, place in counts for name in (raw, place_name(place))}
        homes = {**self._store.regroupings.homes(names), **planned}
        raws = Counter[str]()
        for (raw, _place), number in counts.items():
            raws[raw] += number
        heir = heir_of(group, raws, homes)
        if heir is not None:
            planned[heir] = homes[heir] = group
        targets = Counter[str]()
        for (raw, place), number in counts.items():
            targets[home(homes, raw, place)] += number
        return targets
