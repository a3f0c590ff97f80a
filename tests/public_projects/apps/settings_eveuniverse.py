"""A Django project with django-eveuniverse, for its own tests and for its worker."""

import os

from celery import Celery

SECRET_KEY = "of-a-test"
INSTALLED_APPS = ["django.contrib.auth", "django.contrib.contenttypes", "esi", "eveuniverse"]
DATABASES = {
    "default": {"ENGINE": "django.db.backends.sqlite3", "NAME": os.path.abspath("eve.sqlite3")}
}
DEFAULT_AUTO_FIELD = "django.db.models.AutoField"
USE_TZ = True
ESI_SSO_CLIENT_ID = ESI_SSO_CLIENT_SECRET = "of-a-test"
ESI_SSO_CALLBACK_URL = "https://eve.example/sso/callback"
ESI_USER_CONTACT_EMAIL = "ann@example.com"

if "PYTEST_VERSION" in os.environ:
    # Its tests call tasks in place, by the app of a project.
    app = Celery("eve")
    app.conf.update(task_always_eager=True, task_eager_propagates=True)
    app.conf.ONCE = {
        "backend": "celery_once.backends.File",
        "settings": {"location": os.path.abspath("locks"), "default_timeout": 60},
    }
