"""Brings the tab into a Flower, and never takes Flower down with it."""

from __future__ import annotations

import contextlib
import functools
import importlib.metadata
import logging
from typing import TYPE_CHECKING, Any

from celery_dlq.errors import SettingsError
from celery_dlq.settings import is_configured

if TYPE_CHECKING:
    from celery_dlq.flower.site import Site

logger = logging.getLogger(__name__)

#: Key in Flower's settings under which the site is.
SITE = "celery_dlq"

_MARK = "_celery_dlq_installed"


def install() -> None:
    """Let every ``Flower`` that is made from now on have the tab. Without Flower nothing happens.

    Flower has no plugins; Celery imports our commands before it runs Flower's, so this is in time.
    """
    try:
        # A project may well have a module of this name.
        importlib.metadata.version("flower")
        from flower.app import Flower
    except Exception as error:  # noqa: BLE001 - whatever is wrong with Flower is Flower's to say
        logger.debug("no tab in Flower: %s", error)
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
    """Give a running or new ``Flower`` the tab, once. Returns whether it has it: an app without a
    dead-letter queue gets none.

    :param flower_app: a ``flower.app.Flower``.
    """
    if SITE in flower_app.settings:
        return True
    with contextlib.suppress(SettingsError):  # the pages say so
        # Tasks may not be bound yet, and with them the queue that they ask for.
        flower_app.capp.finalize()
    if not is_configured(flower_app.capp):
        return False
    from celery_dlq.flower.routes import url_specs
    from celery_dlq.flower.site import Site
    from celery_dlq.flower.templates import use_templates

    site = Site(flower_app)
    use_templates(flower_app)
    flower_app.add_handlers(r".*", url_specs(site))
    flower_app.settings[SITE] = site
    _show_metrics(site)
    return True


def _show_metrics(site: Site) -> None:
    """Beside Flower's own, on ``/metrics``; the store is not asked before somebody looks there."""
    from celery_dlq.metrics.collector import register
    from celery_dlq.metrics.snapshot import Snapshots

    register(Snapshots(lambda: site.queue().measure(), patience_s=site.calls.patience_s))
