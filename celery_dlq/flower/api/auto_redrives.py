"""REST: automatic redrives and their runs."""

from __future__ import annotations

from typing import Any

from celery_dlq.api.queue import DeadLetterQueue
from celery_dlq.errors import FilterError
from celery_dlq.flower.acts import move_auto, reason_in
from celery_dlq.flower.api.paging import limit_of
from celery_dlq.flower.filters import check_names
from celery_dlq.flower.http.handler import Api
from celery_dlq.flower.http.request import asked, first, sent_json
from celery_dlq.flower.pages.auto_redrives.auto_redrive import attempt, look_up
from celery_dlq.flower.pages.auto_redrives.auto_run import find_run
from celery_dlq.flower.pages.auto_redrives.listing import FRESH_S
from celery_dlq.model.auto_redrive import EVERY
from celery_dlq.view import auto_redrives as view
from celery_dlq.view import times
from celery_dlq.view.discreet import discreet


class AutoRedrives(Api):
    """``GET /api/dead-letters/auto-redrives``"""

    async def get(self) -> None:
        """All automatic redrives of the app, in the order in which they come first."""
        check_names(asked(self.request), ())
        autos, now = self.site.auto_redrives, times.utc_now()
        found = await self.site.ask(lambda store: view.seen_autos(store, autos, now))
        self.reply(_records(found))


class OneAutoRedrive(Api):
    """``GET /api/dead-letters/auto-redrives/{name}``"""

    async def get(self, name: str) -> None:
        """One automatic redrive: its definition, its state, and its latest runs; at most two seconds old."""
        given = asked(self.request)
        check_names(given, ("limit",))
        limit = limit_of(given)
        known = await self.site.consult(
            ("auto-redrive", name, limit), lambda queue: look_up(queue, name, limit), FRESH_S
        )
        self.reply(view.whole_auto_record(known.seen, known.runs))


class AutoTrial(Api):
    """``GET /api/dead-letters/auto-redrives/{name}/dry-run``"""

    async def get(self, name: str) -> None:
        """What it would do now; at most ten seconds old."""
        check_names(asked(self.request), ())
        trial = await self.site.consult(("auto-trial", name), lambda queue: attempt(queue, name))
        self.reply(view.look_record(trial.look, trial.not_now))


class MoveAuto(Api):
    """``POST /api/dead-letters/auto-redrives/{name}/<act>``: pause, resume or run. The name ``*`` stands for
    all."""

    async def post(self, name: str) -> None:
        """Run the act."""
        given = sent_json(self.request)
        if given.keys() - {"why"}:
            raise FilterError("The body may have only the field why; leave the others out.")
        who, why = self.actor, reason_in(given)

        def carry_out(queue: DeadLetterQueue) -> dict[str, Any]:
            move_auto(queue, name, self.act, who, why)
            autos = queue.settings.auto_redrive
            named = [auto for auto in autos if name in (EVERY, auto.name)]
            store = discreet(queue.store, queue.redactor)
            return _records(view.seen_autos(store, named, times.utc_now()))

        self.reply(await self.site.act(carry_out))


class AutoRuns(Api):
    """``GET /api/dead-letters/auto-redrive-runs``"""

    async def get(self) -> None:
        """Runs that chose letters, newest first, also of automatic redrives that were removed."""
        given = asked(self.request)
        check_names(given, ("name", "limit"))
        name, limit = first(given, "name") or None, limit_of(given)
        found = await self.site.ask(lambda store: view.seen_runs(store, name, limit=limit))
        self.reply({"runs": [view.run_record(seen) for seen in found]})


class AutoRun(Api):
    """``GET /api/dead-letters/auto-redrive-runs/{id}``"""

    async def get(self, run_id: str) -> None:
        """One run, with the task ids of its letters."""
        check_names(asked(self.request), ())
        seen, ids = await self.site.ask(
            lambda store: (find_run(store, run_id), store.auto_redrives.letters_of(run_id))
        )
        self.reply({**view.run_record(seen), "task_ids": ids})


def _records(found: list[view.SeenAuto]) -> dict[str, Any]:
    return {"auto_redrives": [view.auto_record(seen) for seen in found]}
