"""The "Dead letters" tab in Flower, and its REST API.

HTTP requests enter; pages and JSON leave. The tab reads the store, and leaves redrives to workers. Nothing
outside this room imports Flower or Tornado. If Flower is installed, ``celery -A <app> flower`` shows the tab
without any setup; code that creates a ``Flower`` itself calls :func:`attach` with it.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.metadata
import logging
from typing import TYPE_CHECKING, Any

from celery_dlq.errors import SettingsError
from celery_dlq.settings import is_configured

if TYPE_CHECKING:
    from celery_dlq.flower.http.site import Site

logger: logging.Logger = logging.getLogger(__name__)

#: The key of the site in Flower's settings.
SITE = "celery_dlq"

_MARK = "_celery_dlq_installed"


def install() -> None:
    """Add the tab to every ``Flower`` created from now on. Without Flower, this does nothing.

    Flower has no plugins, but Celery imports our commands before it runs Flower's, so this runs in time.
    """
    try:
        # A project may have a module named flower.
        importlib.metadata.version("flower")
        from flower.app import Flower
    except Exception as error:  # noqa: BLE001 - Flower itself reports its errors
        logger.debug("Flower has no tab for dead letters: %s", error)
        return
    if getattr(Flower, _MARK, False):
        return
    setattr(Flower, _MARK, True)
    make = Flower.__init__

    @functools.wraps(make)
    def make_with_tab(self: Any, *args: Any, **kwargs: Any) -> None:
        make(self, *args, **kwargs)
        try:
            attach(self)
        except Exception:
            logger.exception("Flower runs without the tab for dead letters")

    Flower.__init__ = make_with_tab


def attach(flower_app: Any) -> bool:
    """Add the tab to a running or new ``Flower``, once. Returns whether it has the tab; without a dead-letter
    queue in the app it gets none.

    :param flower_app: a ``flower.app.Flower``.
    """
    if SITE in flower_app.settings:
        return True
    with contextlib.suppress(SettingsError):  # the pages show this error
        # Tasks may not be bound yet; binding them sets up the dead-letter queue.
        flower_app.capp.finalize()
    if not is_configured(flower_app.capp):
        return False
    from celery_dlq.flower.http.site import Site
    from celery_dlq.flower.routes import url_specs, use_templates

    site = Site(flower_app)
    use_templates(flower_app)
    flower_app.add_handlers(r".*", url_specs(site))
    flower_app.settings[SITE] = site
    _show_metrics(site)
    return True


def _show_metrics(site: Site) -> None:
    """Add our metrics to Flower's own on ``/metrics``; the store is read only when that page is requested."""
    from celery_dlq.metrics.collector import register
    from celery_dlq.metrics.snapshot import Snapshots

    register(Snapshots(lambda: site.queue().measure(), patience_s=site.calls.patience_s))
