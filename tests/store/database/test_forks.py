"""A process may fork while another of its threads writes to SQLite."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap

_PROGRAM = """
    import os, sys, threading, time

    from celery_dlq.store.sql import SQLStore

    store = SQLStore(sys.argv[1], timeout=1.0)
    store.check_schema()
    writing, ended = threading.Event(), threading.Event()


    def hold(connection):
        writing.set()
        time.sleep(0.02)


    def write():
        while not ended.is_set():
            store.transactions.write(hold)
            time.sleep(0.02)


    thread = threading.Thread(target=write)
    thread.start()
    failed = 0
    for number in range(20):
        writing.clear()
        writing.wait()
        child = os.fork()
        if not child:
            try:
                os._exit(store.leases.take(f"child {number}", holder="me", seconds=60) is None)
            finally:
                os._exit(2)
        failed += os.waitpid(child, 0)[1] != 0
    ended.set()
    thread.join()
    print(failed, "failed")
"""


def test_a_process_that_was_forked_during_a_write_can_write(tmp_path):
    url = f"sqlite:///{tmp_path / 'dlq.sqlite3'}"
    ended = subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", textwrap.dedent(_PROGRAM), url],
        capture_output=True, text=True, timeout=120, check=True, env=dict(os.environ),
    )  # fmt: skip
    assert ended.stdout == "0 failed\n", ended.stderr
