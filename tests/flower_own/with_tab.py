"""A pytest plugin that gives every Flower the tab, on a store that is there.

Loaded with ``-p``, and so before Flower's own tests make one.
"""

import os
import tempfile

from flower.app import Flower

from celery_dlq.flower import SITE, install
from celery_dlq.settings import STORE_URL_VARIABLE

_directory = tempfile.TemporaryDirectory()
os.environ[STORE_URL_VARIABLE] = f"sqlite:///{_directory.name}/store.sqlite3"
install()

_make = Flower.__init__
_attached = []


def _make_and_note(self, *args, **kwargs):
    _make(self, *args, **kwargs)
    _attached.append(SITE in self.settings)


Flower.__init__ = _make_and_note


def pytest_sessionfinish():
    assert _attached, "no test of Flower's made a Flower"
    assert all(_attached), "a Flower had no tab"
    _directory.cleanup()
