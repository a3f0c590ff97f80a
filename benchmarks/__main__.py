"""All benchmarks, one after the other; names as arguments choose some."""

import sys

from benchmarks import capture, redrive, tracer

RUNS = {"tracer": tracer.run, "capture": capture.run, "redrive": redrive.run}

for name in sys.argv[1:] or RUNS:
    RUNS[name]()
