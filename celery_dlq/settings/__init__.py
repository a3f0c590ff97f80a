"""The ``dlq_*`` settings of an app.

A Celery configuration enters, with the environment variables of the store's URLs; validated, frozen
:class:`Settings` leave, or errors that name the next step. The room imports no framework, and no other room
except the errors and the words for unknown names.
"""

from celery_dlq.settings.definitions import (
    ReadSettings,
    Settings,
    check_option,
    is_configured,
    own,
    read_settings,
)
from celery_dlq.settings.validation import STORE_URL_VARIABLE, archive_package

__all__ = [
    "STORE_URL_VARIABLE", "ReadSettings", "Settings", "archive_package",
    "check_option", "is_configured", "own", "read_settings",
]  # fmt: skip
