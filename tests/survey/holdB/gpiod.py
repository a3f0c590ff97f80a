"""gpiod: the machine has no GPIO chip, so the C part is a stub where the case needs one."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent / "lib"))
import holdb_stub as stub  # noqa: E402

LIBRARY = "gpiod==2.5.0"


def chip(c_part):
    import gpiod

    c = gpiod.Chip.__new__(gpiod.Chip)
    c._chip = c_part
    c._info = None
    return c


class Busy:
    def request_lines(self, *args, **kwargs):
        raise OSError(16, "Device or resource busy")

    def get_line_name(self, offset):
        return "line"

    def close(self):
        pass


def busy():
    import gpiod

    c = chip(Busy())
    c._info = gpiod.ChipInfo("gpiochip0", "label", 8)
    c.request_lines({1: None}, consumer="task")


def cases():
    yield (
        "chip does not exist",
        lambda: __import__("gpiod").Chip("/dev/gpiochip99"),
        "terminal",
        "firm",
        "gpiod/chip.py Chip: OSError of the C library (ENOENT)",
    )
    yield (
        "file is no chip",
        lambda: __import__("gpiod").Chip("/dev/null"),
        "terminal",
        "firm",
        "gpiod/chip.py Chip: OSError of the C library (no GPIO chip device)",
    )
    yield (
        "chip is closed already",
        lambda: chip(None).get_info(),
        "terminal",
        "firm",
        "gpiod/exception.py ChipClosedError: an already closed chip is used (an error of the program)",
    )
    yield (
        "another program holds the line",
        busy,
        "transient",
        "soft",
        (
            "kernel GPIO uAPI: EBUSY if the line is in use; raised by a stub of the C part as"
            " _ext.Chip.request_lines does"
        ),
    )
