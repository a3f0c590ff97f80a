"""A Django project with Open edX' base classes for tasks, for their own tests."""

INSTALLED_APPS = ["celery_utils"]
DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}}
DEFAULT_AUTO_FIELD = "django.db.models.AutoField"
USE_TZ = True
