"""The end of a run on its way from the process that ran it to the worker's parent."""

import pickle

from support.workers.parent_requests import einfo
from support.workers.task_tracer import Run

from celery_dlq import DLQTask, Reason
from celery_dlq.worker.run_end import UNREPORTED, RunEnd, report, reported


def test_an_end_is_read_as_it_was_reported():
    info, end = einfo(ValueError("bad")), RunEnd(retried=True, for_error=True, rule="os.closed")
    report(info, end)
    assert reported(info) is end


def test_a_process_that_died_has_reported_nothing():
    assert reported(einfo(ValueError("bad"))) is UNREPORTED


def test_it_survives_the_pipe_to_the_parent(app):
    @app.task(base=DLQTask)
    def charge():
        raise KeyError("eur")

    run = Run(charge)
    received = pickle.loads(pickle.dumps(run.einfo))
    assert reported(received) == run.end
    assert reported(received).failure.reason is Reason.TERMINAL


def test_all_of_it_is_on_one_attribute(app):
    @app.task(base=DLQTask)
    def charge():
        raise KeyError("eur")

    assert [name for name in vars(Run(charge).einfo) if "dlq" in name] == ["dlq_end"]
