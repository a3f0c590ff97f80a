"""tinytuya: Tuya devices and the Tuya cloud."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent / "lib"))

import tinytuya  # noqa: E402
import holda_stub as stub  # noqa: E402

LIBRARY = "tinytuya==1.20.0"


def cloud(address):
    with stub.rerouted(address):
        return tinytuya.Cloud("us", "key", "secret", "device")


def unknown_host():
    with stub.no_such_host():
        return tinytuya.Cloud("us", "key", "secret", "device")


def offline_bulb():
    bulb = tinytuya.BulbDevice(
        "id",
        "127.0.0.1",
        "0123456789abcdef",
        version=3.3,
        port=stub.port(stub.closed()),
        connection_timeout=0.3,
        connection_retry_limit=1,
        connection_retry_delay=0.1,
    )
    bulb.detect_bulb({"dps": {"20": True, "21": "white", "22": 10, "23": 5, "24": "000003e803e8", "25": "x"}})
    bulb.status = lambda nowait=False: bulb.__class__.__mro__[1].status(bulb, nowait=nowait)
    bulb.cached_status = lambda nowait=False, **k: bulb.status(nowait=nowait)
    return bulb.get_value("brightness", state=bulb.status())


def cases():
    yield (
        "the cloud refuses the connection",
        lambda: cloud(stub.closed()),
        "transient",
        "firm",
        "Cloud.py _tuyaplatform: requests.get, its error as it is",
    )
    yield (
        "the cloud resets the connection",
        lambda: cloud(stub.resets()),
        "transient",
        "firm",
        "Cloud.py _tuyaplatform: requests.get, its error as it is",
    )
    yield (
        "the bulb is not reachable",
        offline_bulb,
        "transient",
        "soft",
        "BulbDevice.py:750 get_value: the state of the device is an error (here 901, Unable to Connect)",
    )
    yield ("unknown host of the cloud", unknown_host, "terminal", "firm", "the host name does not exist")
    yield (
        "no key of the cloud",
        lambda: tinytuya.Cloud("us", configFile="/no/such/tinytuya.json"),
        "terminal",
        "firm",
        "Cloud.py:120 TypeError: Tuya Cloud Key and Secret required",
    )
    yield (
        "colour out of range",
        lambda: tinytuya.BulbDevice.rgb_to_hexvalue(300, 0, 0, "rgb8"),
        "terminal",
        "firm",
        "BulbDevice.py:213 ValueError: needs to be between 0 and 255",
    )
