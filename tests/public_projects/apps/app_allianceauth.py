"""Alliance Auth: Django, django-celery-beat, celery-once with a lock backend of its own."""

import os

os.environ["DJANGO_SETTINGS_MODULE"] = "settings_allianceauth"

from allianceauth.project_template.project_name.celery import app
from cases import QUEUE, SECRET, Case, set_up

set_up(app)
app.conf.task_routes = {"*": {"queue": QUEUE}}

import django  # noqa: E402

django.setup()

# The first one; its signals look up a user that has an id before it is saved.
_USER = 1
_SERVICES = "allianceauth.services.tasks"
_ANALYTICS = "allianceauth.analytics.tasks.send_ga_tracking_celery_event"
_EVENT = {"measurement_id": "G-1", "secret": SECRET, "namespace": "auth", "task": "stats"}

CASES = [
    Case(f"{_SERVICES}.validate_services", "DoesNotExist", "terminal", "terminal", (_USER,)),
    Case(f"{_SERVICES}.update_groups_for_user", "DoesNotExist", "terminal", "terminal", (_USER,)),
    Case("discord.update_groups", "DoesNotExist", "terminal", "terminal", (_USER,)),
    Case("allianceauth.eveonline.tasks.run_model_update", "OperationalError", "terminal", "terminal"),
    Case(_ANALYTICS, "OperationalError", "terminal", "terminal", (), _EVENT),
]  # fmt: skip
_TABLES = ("eveonline_evecorporationinfo", "analytics_analyticsidentifier")


def _rename(old, new):
    with django.db.connection.cursor() as cursor:
        for table in _TABLES:
            cursor.execute(f"ALTER TABLE {table}{old} RENAME TO {table}{new}")


def prepare():
    from django.core.management import call_command

    call_command("migrate", verbosity=0)
    _rename("", "_away")


def mend(service):
    from django.contrib.auth.models import User

    _rename("_away", "")
    User.objects.create(username="ann")
