"""All benchmarks, one after the other; names as arguments choose some."""

import sys

from benchmarks import (
    archive,
    budget,
    capture,
    decide,
    idle,
    pages,
    parking,
    partitions,
    redrive,
    retention,
    success,
    tracer,
)

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
    "retention": retention.run,
    "partitions": partitions.run,
    "archive": archive.run,
}

for name in sys.argv[1:] or RUNS:
    RUNS[name]()
