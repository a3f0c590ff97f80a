"""``celery_dlq`` as a Django app: ``manage.py check`` checks its settings. Only Django imports this."""

from __future__ import annotations

from typing import Any

from celery import _state as celery_state
from django.apps import AppConfig
from django.core import checks

from celery_dlq.settings import is_configured, read_settings


class CeleryDLQConfig(AppConfig):  # type: ignore[misc]
    """The Django app. It has no models, because the tables are not Django's."""

    name = "celery_dlq"
    verbose_name = "Dead-letter queue"

    def ready(self) -> None:
        """Register the check when Django has loaded the project."""
        checks.register(check_settings, "celery_dlq")


def check_settings(app_configs: Any = None, **kwargs: Any) -> list[checks.CheckMessage]:
    """The errors in the ``dlq_*`` settings of the project's Celery apps."""
    if app_configs is not None and not any(
        isinstance(config, CeleryDLQConfig) for config in app_configs
    ):
        return []
    apps = [app for app in celery_state._get_active_apps() if app.main != "default"]
    if not apps:
        return [_NO_APP]
    return [
        checks.Error(problem, hint=_HINT, obj=f"Celery app {app.main}", id="celery_dlq.E001")
        for app in apps
        if is_configured(app)
        for problem in read_settings(app).problems
    ]


_HINT = "Workers and dlq commands do not start until this is fixed."
_NO_APP = checks.Warning(
    "No Celery app is loaded, so its dlq_* settings are not checked.",
    hint="Import the app in the __init__.py of your project: from .celery import app as celery_app",
    id="celery_dlq.W001",
)
