"""The shop's website."""

import contextlib


@contextlib.contextmanager
def app_context():
    """What the web framework needs around code that uses it."""
    yield
