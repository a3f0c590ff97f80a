"""Wakes people up."""


def send(text):
    """Send ``text`` to the one on call."""
