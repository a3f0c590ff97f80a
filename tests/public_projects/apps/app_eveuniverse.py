"""django-eveuniverse: Django, celery-once, ``autoretry_for`` as a list and time limits, in a project
whose migrations were not run."""

import os

os.environ["DJANGO_SETTINGS_MODULE"] = "settings_eveuniverse"

from cases import SECRET, Case, set_up
from celery import Celery

app = Celery("eve", task_cls="celery_dlq:DLQTask")
app.config_from_object("django.conf:settings", namespace="CELERY")
set_up(app)
app.conf.ONCE = {
    "backend": "celery_once.backends.File",
    "settings": {"location": os.path.abspath("locks"), "default_timeout": 60},
}
app.autodiscover_tasks()

import django  # noqa: E402

django.setup()

_ID = 10000069


def _case(name, *args, **options):
    task = f"eveuniverse.tasks.{name}"
    return Case(task, "OperationalError", "transient", "exhausted", args, {}, options)


CASES = [
    _case("load_eve_object", "EveRegion", _ID, headers={"authorization": f"Bearer {SECRET}"}),
    _case("load_eve_object", "EveCategory", _ID),
    _case("load_eve_object", "EveGroup", _ID),
    _case("create_eve_entities", [_ID]),
    _case("update_unresolved_eve_entities"),
]


def prepare():
    """Nothing: the tables are missing."""


def mend(service):
    from django.core.management import call_command
    from eveuniverse.models import EveCategory, EveEntity, EveGroup, EveRegion

    call_command("migrate", verbosity=0)
    EveRegion.objects.create(id=_ID, name="Black Rise")
    EveEntity.objects.create(id=_ID, name="Black Rise")
    category = EveCategory.objects.create(id=_ID, name="Ship", published=True)
    EveGroup.objects.create(id=_ID, name="Frigate", eve_category=category, published=True)
