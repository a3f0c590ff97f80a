"""Libraries that need not be installed."""

from importlib import import_module

import pytest


def library(name):
    """The module ``name``; the test is skipped without it."""
    pytest.importorskip(name.partition(".")[0])
    return import_module(name)
