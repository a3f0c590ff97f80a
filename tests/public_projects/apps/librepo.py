"""Stands for the bindings of librepo, which come with the system and not from PyPI. No task here uses it."""
