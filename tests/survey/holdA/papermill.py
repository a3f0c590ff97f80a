"""papermill: running of notebooks."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent / "lib"))

import tempfile  # noqa: E402
from unittest import mock  # noqa: E402

import nbformat  # noqa: E402
from nbclient.exceptions import CellTimeoutError  # noqa: E402
from papermill import iorw  # noqa: E402
from papermill.execute import execute_notebook, raise_for_execution_errors  # noqa: E402
from papermill.parameterize import parameterize_path  # noqa: E402
import holda_stub as stub  # noqa: E402

LIBRARY = "papermill==2.7.0"


def gcs_busy():
    class Busy(Exception):
        message = "The rate of change requests to the object exceeds the rate limit"

    def fail(*a, **k):
        raise Busy()

    system = mock.Mock()
    system.return_value.open = fail
    with (
        mock.patch.object(iorw, "GCSFileSystem", system),
        mock.patch.object(iorw, "gs_is_retriable", lambda e: True),
        mock.patch.object(iorw.GCSHandler, "RETRY_DELAY", 0),
        mock.patch.object(iorw.GCSHandler, "RETRY_MULTIPLIER", 0),
    ):
        iorw.GCSHandler().write("{}", "gs://bucket/out.ipynb")


def cell_error(ename, evalue):
    cell = nbformat.v4.new_code_cell(
        "load()",
        execution_count=3,
        outputs=[
            nbformat.v4.new_output(
                "error",
                ename=ename,
                evalue=evalue,
                traceback=["Traceback (most recent call last)", f"{ename}: {evalue}"],
            )
        ],
    )
    with tempfile.TemporaryDirectory() as folder:
        raise_for_execution_errors(nbformat.v4.new_notebook(cells=[cell]), folder + "/out.ipynb")


def slow_cell():
    raise CellTimeoutError.error_from_timeout_and_cell(
        "Cell execution timed out", 30, nbformat.v4.new_code_cell("wait()")
    )


def put(status):
    return iorw.HttpHandler.write("{}", stub.answer(status, "no") + "/out.ipynb")


def cases():
    yield (
        "rate limit of the storage",
        gcs_busy,
        "transient",
        "firm",
        "PapermillRateLimitException: an io request has been rate limited; iorw.py:318 retries it",
    )
    yield (
        "the storage is unavailable",
        lambda: put(503),
        "transient",
        "firm",
        "iorw.py:180 HttpHandler.write raise_for_status",
    )
    yield (
        "connection refused by the storage",
        lambda: iorw.HttpHandler.read(stub.closed() + "/in.ipynb"),
        "transient",
        "firm",
        "iorw.py:170 HttpHandler.read: requests' error as it is",
    )
    yield (
        "a cell runs into execution_timeout",
        slow_cell,
        "transient",
        "soft",
        "constructed as in nbclient/client.py _handle_timeout; a cell has timed out during execution",
    )
    yield (
        "a cell raises ValueError",
        lambda: cell_error("ValueError", "could not convert string to float: 'x'"),
        "terminal",
        "firm",
        "exceptions.py: an exception is encountered in a notebook; the same cell fails again",
    )
    yield (
        "no rights to write the output",
        lambda: put(403),
        "terminal",
        "firm",
        "iorw.py:180 HttpHandler.write raise_for_status",
    )
    yield (
        "a parameter of the path is missing",
        lambda: parameterize_path("{run}/in.ipynb", {}),
        "terminal",
        "firm",
        "exceptions.py: a parameter without a value is required",
    )
    yield (
        "the notebook does not exist",
        lambda: execute_notebook("/no/such/in.ipynb", None),
        "terminal",
        "firm",
        "iorw.py:203: the OSError of open",
    )
