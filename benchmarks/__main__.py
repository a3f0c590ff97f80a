"""All benchmarks, one after the other; names as arguments choose some."""

import sys

from benchmarks import budget, capture, decide, idle, pages, parking, redrive, success, tracer

RUNS = {
    "tracer": tracer.run,
    "decide": decide.run,
    "success": success.run,
    "capture": capture.run,
    "redrive": redrive.run,
    "budget": budget.run,
    "parking": parking.run,
    "idle": idle.run,
    "pages": pages.run,
}

for name in sys.argv[1:] or RUNS:
    RUNS[name]()
