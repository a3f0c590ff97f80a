"""Programs in namespaces of their own. This machine's own directories take the place of a suite."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from platforms.debian import Suite, SuiteError
from project import wait_for

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root may make namespaces"),
]

HERE = Suite(".", Path("/"))

#: Starts a server that has a process of its own, and changes its user, as databases do.
STARTER = """
import signal, subprocess
from pathlib import Path
from platforms.debian import Suite
# A job in the background of a shell ignores SIGINT, and so would its processes.
signal.signal(signal.SIGINT, signal.default_int_handler)
here = Suite(".", Path("/"))
subprocess.run(here.inside(["sh", "-c", "sleep 4711.{mark} & sleep 4711.{mark}"], user="nobody"))
"""


def running(mark):
    """The processes that the starter has left to run."""
    found = subprocess.run(["pgrep", "-fx", f"sleep 4711.{mark}"], capture_output=True, text=True)
    return found.stdout.split()


@pytest.mark.parametrize("end", ["kill", "interrupt"])
def test_everything_ends_with_the_run_however_it_ends(end, tmp_path):
    mark = os.getpid()
    script = STARTER.format(mark=mark)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    mounts = Path("/proc/mounts").read_text()
    with subprocess.Popen([sys.executable, "-c", script], env=environment, stderr=-3) as starter:
        wait_for("both processes", lambda: len(running(mark)) == 2)
        starter.send_signal({"kill": 9, "interrupt": 2}[end])
    wait_for("the end of both", lambda: not running(mark))
    assert Path("/proc/mounts").read_text() == mounts


def test_a_program_runs_as_its_user_and_its_status_is_known():
    seen = subprocess.run(HERE.inside(["sh", "-c", "id -un; exit 7"], user="nobody"), stdout=-1)
    assert (seen.stdout, seen.returncode) == (b"nobody\n", 7)


def test_a_user_that_does_not_exist_is_an_error():
    with pytest.raises(SuiteError, match="does not have the user elvis"):
        HERE.ids_of("elvis")
