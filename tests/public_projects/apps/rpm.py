"""Stands for the bindings of RPM, which come with the system and not from PyPI. Bodhi compares versions with
them."""


def labelCompare(one, other):
    """-1, 0 or 1, as RPM's function of that name; enough for versions that are numbers."""
    return (one > other) - (one < other)
