"""Django and Django REST framework."""

from __future__ import annotations

from celery_dlq.classify.builtin.databases.orm import driver_error
from celery_dlq.classify.builtin.http import http_status
from celery_dlq.classify.evidence import number, read
from celery_dlq.classify.table import Finding, Row, probed, terminal, within, wrapper
from celery_dlq.model.states import Verdict

_status = http_status(("status_code",))


def throttled(exc: BaseException) -> Finding:
    """rest_framework/exceptions.py: ``wait`` is a number of seconds, or None."""
    wait = number(read(exc, "wait"))
    seconds = float(wait) if wait is not None and wait >= 0 else None
    return Finding(Verdict.TRANSIENT, "drf.throttled", f"wait={wait}", seconds, throttled=True)


_DATABASE = (
    # django/db/utils.py: DatabaseErrorWrapper raises from the driver's exception.
    probed(
        "django.database",
        driver_error,
        "the driver's exception in __cause__, else its number or text",
        "django.db.utils.Error",
    ),
    terminal("django.transaction", "django.db.transaction.TransactionManagementError"),
    terminal(
        "django.relation", *within("django.db.models.deletion", "ProtectedError RestrictedError")
    ),
)

_OWN = (
    # django/core/exceptions.py. A missing row may be a task that ran before its commit: on_commit().
    terminal(
        "django.usage",
        *within(
            "django.core.exceptions",
            "ObjectDoesNotExist MultipleObjectsReturned FieldDoesNotExist FieldError ValidationError "
            "ImproperlyConfigured AppRegistryNotReady SuspiciousOperation PermissionDenied BadRequest "
            "ViewDoesNotExist MiddlewareNotUsed SynchronousOnlyOperation EmptyResultSet FullResultSet",
        ),
        "django.http.response.Http404",
        "django.core.signing.BadSignature",
        "django.core.paginator.InvalidPage",
        "django.core.serializers.base.SerializationError",
        "django.urls.exceptions.NoReverseMatch",
        "django.utils.connection.ConnectionDoesNotExist",
        *within("django.template.exceptions", "TemplateDoesNotExist TemplateSyntaxError"),
        *within(
            "django.db.migrations.exceptions",
            "AmbiguityError BadMigrationError CircularDependencyError InconsistentMigrationHistory "
            "IrreversibleError",
        ),
    ),
    # What they were raised from counts: a command may fail for any reason.
    wrapper(
        "django.wrapper",
        "its cause",
        "django.core.management.base.CommandError",
        "django.core.serializers.base.DeserializationError",
        *within("django_redis.exceptions", "ConnectionInterrupted"),
    ),
)

_DRF = (
    probed("drf.throttled", throttled, "wait", "rest_framework.exceptions.Throttled"),
    probed("http.status", _status, "status_code", "rest_framework.exceptions.APIException"),
)

ROWS: tuple[Row, ...] = (*_DATABASE, *_OWN, *_DRF)
