"""The part of the Python API for automatic redrives."""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import cached_property
from typing import TYPE_CHECKING

from celery_dlq.api.redrives import RedriveAPI
from celery_dlq.errors import UnknownAutoRedrive
from celery_dlq.known import unknown_name
from celery_dlq.model.auto_redrive import EVERY, AutoState, AutoStatus

if TYPE_CHECKING:
    from celery_dlq.upkeep.auto_redrive.definition import AutoRedrive
    from celery_dlq.upkeep.auto_redrive.runner import AutoRedriveEngine, Look
    from celery_dlq.upkeep.auto_redrive.suggesting import Suggestion


class AutoRedriveAPI(RedriveAPI):
    """The methods of a dead-letter queue for automatic redrives."""

    @cached_property
    def auto_redrives(self) -> AutoRedriveEngine:
        """Runs the automatic redrives of the settings.

        :raises SettingsError: a definition does not fit the app.
        """
        from celery_dlq.upkeep.auto_redrive.runner import AutoRedriveEngine

        return AutoRedriveEngine(self.redrive_context, self.redrives)

    def auto_redrive_named(self, name: str) -> AutoRedrive:
        """The automatic redrive of the settings with this name.

        :raises UnknownAutoRedrive: the settings have none with this name.
        """
        autos: dict[str, AutoRedrive] = {auto.name: auto for auto in self.settings.auto_redrive}
        if name not in autos:
            raise UnknownAutoRedrive(unknown_name("an automatic redrive of this app", name, autos))
        return autos[name]

    def auto_status(self, name: str) -> AutoStatus:
        """The state of an automatic redrive.

        :raises UnknownAutoRedrive: the settings have none with this name.
        """
        self.auto_redrive_named(name)
        return self.store.auto_redrives.statuses().get(name, AutoStatus(name=name))

    def pause_auto(self, name: str = EVERY, *, who: str, why: str = "") -> bool:
        """Stop an automatic redrive, or all of them, until it is resumed. Its running operation is cancelled
        before the next batch. Returns whether it was not paused before.

        :raises UnknownAutoRedrive: the settings have none with this name.
        """
        return self._set_auto(name, AutoState.PAUSED, who, why)

    def resume_auto(self, name: str = EVERY, *, who: str, why: str = "") -> bool:
        """Let an automatic redrive that was paused or suspended run again, or lift the pause of all of them.
        Returns whether it was stopped before.

        :raises UnknownAutoRedrive: the settings have none with this name.
        """
        return self._set_auto(name, AutoState.ACTIVE, who, why)

    def run_auto(self, name: str, *, who: str) -> None:
        """Let a worker look for the letters of an automatic redrive at once, instead of at the next time of
        its timetable.

        :raises UnknownAutoRedrive: the settings have none with this name.
        """
        self.auto_redrive_named(name)
        self.store.auto_redrives.make_due(name, who=who, now=self.store.now())

    def try_auto(self, name: str) -> Look:
        """What an automatic redrive would do if it looked for letters now. Nothing is sent or changed.

        :raises UnknownAutoRedrive: the settings have none with this name.
        """
        self.auto_redrive_named(name)
        return self.auto_redrives.look(name, self.store.now())

    def suggest_auto(
        self, since: datetime | None = None, *, least: int = 20, share: float = 0.9
    ) -> list[Suggestion]:
        """The groups whose redrives succeeded, and from which age of the failure on; the group with the most
        redrives comes first. Changed messages do not count.

        :param since: read the redrives that ended at this time or later; by default those of 90 days.
        :param least: redrives that a suggestion needs.
        :param share: the share of them that must have succeeded.
        """
        from celery_dlq.upkeep.auto_redrive import suggesting

        begin = since or self.store.now() - timedelta(days=suggesting.DAYS)
        past = self.store.sendings.past(begin, limit=suggesting.MOST)
        return suggesting.suggest(past, least=least, share=share)

    def _set_auto(self, name: str, state: AutoState, who: str, why: str) -> bool:
        if name != EVERY:
            self.auto_redrive_named(name)
        now = self.store.now()
        return self.store.auto_redrives.set_state(name, state, who=who, why=why, now=now)
