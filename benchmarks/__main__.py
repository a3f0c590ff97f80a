"""All benchmarks, one after the other; names as arguments choose some."""

import sys

from benchmarks import (
    archive,
    budget,
    capture,
    decide,
    encryption,
    given_back,
    idle,
    killed,
    killed_takes,
    log_lines,
    pages,
    parking,
    partitions,
    recorder,
    redrive,
    regroup,
    retention,
    sending,
    start,
    success,
    take,
    tracer,
    values,
)

RUNS = {
    "tracer": tracer.run,
    "decide": decide.run,
    "sending": sending.run,
    "success": success.run,
    "start": start.run,
    "recorder": recorder.run,
    "take": take.run,
    "given_back": given_back.run,
    "capture": capture.run,
    "log_lines": log_lines.run,
    "redrive": redrive.run,
    "budget": budget.run,
    "parking": parking.run,
    "idle": idle.run,
    "killed": killed.run,
    "killed_takes": killed_takes.run,
    "pages": pages.run,
    "retention": retention.run,
    "regroup": regroup.run,
    "partitions": partitions.run,
    "archive": archive.run,
    "values": values.run,
    "encryption": encryption.run,
}

for name in sys.argv[1:] or RUNS:
    RUNS[name]()
