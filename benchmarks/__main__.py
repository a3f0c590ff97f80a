"""All benchmarks, one after the other; names as arguments choose some."""

import sys

from benchmarks import capture, redrive, success, tracer

RUNS = {
    "tracer": tracer.run,
    "success": success.run,
    "capture": capture.run,
    "redrive": redrive.run,
}

for name in sys.argv[1:] or RUNS:
    RUNS[name]()
