import sys; sys.path.insert(0, "/tmp/survey/cases/dev_lib")
import devstub as S

LIBRARY = "lerobot==0.4.4"
# Without torch: only the modules that need nothing else, from the unpacked wheel.
sys.path.append("/tmp/survey/lerobot-src")
from lerobot.utils.errors import DeviceNotConnectedError, DeviceAlreadyConnectedError
import packaging.version
from lerobot.datasets.backward_compatibility import ForwardCompatibilityError, BackwardCompatibilityError
def r(e):
    def f(): raise e()
    return f
def cases():
    yield "device not connected", r(DeviceNotConnectedError), "terminal", "firm", "utils/errors.py: 'This device is not connected. Try calling `connect()` first.'; raised without arguments in reachy2_teleoperator.py 135"
    yield "camera not initialized", r(lambda: DeviceNotConnectedError("OpenCVCamera(0) videocapture is not initialized")), "terminal", "firm", "cameras/opencv/camera_opencv.py 206"
    yield "device already connected", r(DeviceAlreadyConnectedError), "terminal", "firm", "utils/errors.py: 'Try not calling `connect()` twice.'"
    yield "camera fails to open", r(lambda: ConnectionError("Failed to open OpenCVCamera(0).Run `lerobot-find-cameras opencv` to find available cameras.")), "terminal", "soft", "cameras/opencv/camera_opencv.py 163"
    yield "dataset of a newer version", r(lambda: ForwardCompatibilityError("a/b", packaging.version.parse("v4.0"))), "terminal", "firm", "datasets/backward_compatibility.py"
    yield "dataset of an older version", r(lambda: BackwardCompatibilityError("a/b", packaging.version.parse("v2.1"))), "terminal", "firm", "datasets/backward_compatibility.py"
