"""REST: counts, what is kept of closed letters, and messages of killed workers."""

from __future__ import annotations

from celery_dlq.flower.filters import check_names
from celery_dlq.flower.http.handler import Api
from celery_dlq.flower.http.request import asked
from celery_dlq.view import records, times
from celery_dlq.view.stats import keeping_record, losses_of, lost_record


class Statistics(Api):
    """``GET /api/dead-letters/stats``"""

    async def get(self) -> None:
        """Depth, arrivals and ages, at most ten seconds old."""
        check_names(asked(self.request), ())
        found = await self.site.recall(
            "stats", lambda store: store.monitoring.stats(times.utc_now())
        )
        self.reply(records.stats_record(found))


class Retention(Api):
    """``GET /api/dead-letters/retention``"""

    async def get(self) -> None:
        """What is kept of closed letters, and what is in the archive; at most ten seconds old."""
        check_names(asked(self.request), ())
        found = await self.site.recall("keeping", lambda store: store.reports.keeping())
        self.reply(keeping_record(found, times.utc_now()))


class Recorder(Api):
    """``GET /api/dead-letters/recorder``"""

    async def get(self) -> None:
        """Lost letters, reports of workers, and the files of Flower's machine; at most ten seconds old."""
        check_names(asked(self.request), ())
        found = await self.site.consult("losses", losses_of)
        self.reply(lost_record(found))
