"""Alliance Auth's own settings, without its servers, for its tests and for its worker."""

import os

from allianceauth.project_template.project_name.settings.base import *  # noqa: F403
from fakeredis import FakeConnection

INSTALLED_APPS += ["allianceauth.services.modules.discord", "allianceauth.services.modules.mumble"]  # noqa: F405
ROOT_URLCONF = "allianceauth.urls"
CACHES["default"]["KEY_PREFIX"] = "public-projects-auth"  # noqa: F405
if "PYTEST_VERSION" in os.environ:
    # Its tests empty the whole cache.
    CACHES["default"]["OPTIONS"] = {"CONNECTION_POOL_KWARGS": {"connection_class": FakeConnection}}  # noqa: F405
DATABASES = {
    "default": {"ENGINE": "django.db.backends.sqlite3", "NAME": os.path.abspath("auth.sqlite3")}
}
STORAGES = {
    "default": {"BACKEND": "django.core.files.storage.FileSystemStorage"},
    "staticfiles": {"BACKEND": "django.contrib.staticfiles.storage.StaticFilesStorage"},
}
LOGGING = {"version": 1, "disable_existing_loggers": False}
STATICFILES_DIRS = []
ESI_SSO_CLIENT_ID = ESI_SSO_CLIENT_SECRET = "of-a-test"
ESI_SSO_CALLBACK_URL = "https://auth.example/sso/callback"
ESI_USER_CONTACT_EMAIL = "ann@example.com"
DISCORD_BOT_TOKEN = DISCORD_GUILD_ID = DISCORD_APP_ID = DISCORD_APP_SECRET = "1"
SITE_URL = "https://auth.example"
MUMBLE_URL = "auth.example"
