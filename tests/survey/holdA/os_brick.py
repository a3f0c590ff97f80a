"""os-brick: volumes of OpenStack on a host."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent / "lib"))

from unittest import mock  # noqa: E402

from os_brick.initiator import connector, linuxrbd, linuxscsi  # noqa: E402
from os_brick.local_dev import lvm  # noqa: E402
from os_brick.privileged import rootwrap  # noqa: E402
from os_brick.remotefs import remotefs  # noqa: E402

LIBRARY = "os-brick==7.1.1"


def scsi(out=""):
    return linuxscsi.LinuxSCSI("sudo", execute=lambda *a, **k: (out, ""))


def quick(function):
    def run():
        with mock.patch("tenacity.nap.time"):
            return function()

    return run


class Rados:
    class Error(Exception):
        pass

    class Rados:
        def __init__(self, **k):
            pass

        def connect(self):
            raise Rados.Error("error connecting to the cluster: errno ETIMEDOUT")

        def shutdown(self):
            pass


def still_active():
    group = object.__new__(lvm.LVM)
    group._lv_is_active = lambda name: True
    group._wait_for_volume_deactivation("vol-1")


def no_group():
    with mock.patch.object(lvm.LVM, "_vg_exists", lambda self: False):
        lvm.LVM("cinder-volumes", "sudo", executor=lambda *a, **k: ("", ""))


def cases():
    yield (
        "the device is not there yet",
        quick(lambda: scsi().wait_for_path("/dev/no-such-device")),
        "transient",
        "firm",
        "initiator/linuxscsi.py:479 retries VolumeDeviceNotFound: wait for a path to show up",
    )
    yield (
        "the volume is still active",
        quick(still_active),
        "transient",
        "firm",
        "local_dev/lvm.py:619 retries VolumeNotDeactivated: not deactivated in time",
    )
    yield (
        "multipathd still holds the paths",
        quick(lambda: scsi("sda sdb").wait_multipathd_remove_paths({"sda"})),
        "transient",
        "firm",
        "linuxscsi.py:359 retries MultipathdPathsNotRemoved: still not removed",
    )
    yield (
        "a command runs out of time",
        lambda: rootwrap.custom_execute("sleep", "5", timeout=0.2),
        "transient",
        "soft",
        "privileged/rootwrap.py:162 ExecutionTimeout",
    )
    yield (
        "the Ceph cluster does not answer",
        lambda: linuxrbd.RBDClient("user", "pool", rados=Rados, rbd=object()),
        "transient",
        "soft",
        "initiator/linuxrbd.py:86 BrickException 'Error connecting to ceph cluster.' while a rados.Error "
        "(here a timeout)",
    )
    yield ("no such volume group", no_group, "terminal", "firm", "local_dev/lvm.py:103 VolumeGroupNotFound")
    yield (
        "unknown protocol",
        lambda: connector.InitiatorConnector.factory("CARRIER-PIGEON", "sudo"),
        "terminal",
        "firm",
        "initiator/connector.py:268 InvalidConnectorProtocol, a ValueError",
    )
    yield (
        "mount point is missing",
        lambda: remotefs.RemoteFsClient("nfs", "sudo"),
        "terminal",
        "firm",
        "remotefs/remotefs.py:59 InvalidParameterValue",
    )
