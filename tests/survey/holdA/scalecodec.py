"""scalecodec: SCALE codec of Substrate."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent / "lib"))

from scalecodec.base import RuntimeConfigurationObject, ScaleBytes  # noqa: E402
from scalecodec.exceptions import MetadataCallFunctionNotFound  # noqa: E402
from scalecodec.type_registry import load_type_registry_preset  # noqa: E402
from scalecodec.updater import update_type_registries  # noqa: E402
import holda_stub as stub  # noqa: E402

LIBRARY = "scalecodec==1.2.12"


def create(name, data=None):
    config = RuntimeConfigurationObject()
    config.update_type_registry(load_type_registry_preset("legacy"))
    return config.create_scale_object(name, data)


def update(address):
    with stub.rerouted(address):
        update_type_registries()


def no_call():
    raise MetadataCallFunctionNotFound("Call function 'Balances.pay' not found in metadata")


def cases():
    yield (
        "the registry of types refuses the connection",
        lambda: update(stub.closed()),
        "transient",
        "firm",
        "updater.py: requests.get, its error as it is",
    )
    yield (
        "the registry of types resets the connection",
        lambda: update(stub.resets()),
        "transient",
        "firm",
        "updater.py: requests.get, its error as it is",
    )
    yield (
        "more bytes than the type",
        lambda: create("u16", ScaleBytes("0x01000000")).decode(check_remaining=True),
        "terminal",
        "firm",
        "base.py:888 RemainingScaleBytesNotEmptyException: wrong data",
    )
    yield (
        "bytes are no bool",
        lambda: create("bool", ScaleBytes("0x05")).decode(),
        "terminal",
        "firm",
        "base.py:818 InvalidScaleTypeValueException",
    )
    yield (
        "number out of range",
        lambda: create("u8").encode(300),
        "terminal",
        "firm",
        "types.py:314 ValueError: out of range for u8",
    )
    yield (
        "unknown type",
        lambda: create("NoSuchType", ScaleBytes("0x00")),
        "terminal",
        "firm",
        "base.py:196 NotImplementedError: decoder class not found",
    )
    yield (
        "unknown call",
        no_call,
        "terminal",
        "firm",
        "constructed as at types.py:1715 (it needs the metadata of a chain)",
    )
