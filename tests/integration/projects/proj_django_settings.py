"""The Django settings of ``proj_django``; run as a program it makes the tables, and one periodic task."""

import os

SECRET_KEY = "for tests"
INSTALLED_APPS = ["django_celery_beat", "django_celery_results"]
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": os.environ["PROJ_DJANGO"],
        "OPTIONS": {"timeout": 30},
    }
}
USE_TZ = True
TIME_ZONE = "UTC"
DEFAULT_AUTO_FIELD = "django.db.models.AutoField"


def main() -> None:
    import django
    from django.core.management import call_command

    django.setup()
    call_command("migrate", verbosity=0)

    from django_celery_beat.models import IntervalSchedule, PeriodicTask

    second, _ = IntervalSchedule.objects.get_or_create(every=1, period=IntervalSchedule.SECONDS)
    PeriodicTask.objects.create(
        name="every second", task="proj.periodic", interval=second, one_off=True
    )


if __name__ == "__main__":
    main()
