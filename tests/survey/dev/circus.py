import sys; sys.path.insert(0, "/tmp/survey/cases/dev_lib")
import devstub as S

LIBRARY = "circus==0.19.0"
import zmq
from circus.client import CircusClient
import circus.exc as X
def silent():
    c = zmq.Context.instance(); s = c.socket(zmq.ROUTER); p = s.bind_to_random_port("tcp://127.0.0.1")
    CircusClient(endpoint=f"tcp://127.0.0.1:{p}", timeout=0.2).send_message("status")
def garbage():
    import threading
    s = zmq.Context.instance().socket(zmq.ROUTER); p = s.bind_to_random_port("tcp://127.0.0.1")
    def f(): i, m = s.recv_multipart(); s.send_multipart([i, b"not json"])
    threading.Thread(target=f, daemon=True).start()
    CircusClient(endpoint=f"tcp://127.0.0.1:{p}", timeout=2).send_message("status")
def conflict():
    import asyncio
    from circus.util import synchronized
    class A:
        _running_commands = None
        @synchronized("arbiter_stop")
        def stop(self): pass
    a = A(); a.arbiter = type("R", (), {"_exclusive_running_command": "reload", "_restarting": False})(); a._exclusive_running_command = "reload"; a._restarting = False
    a.stop()
def bad_watcher():
    from circus.watcher import Watcher
    from circus.commands import get_commands
    get_commands()["set"].validate({})
def cases():
    yield "no answer in time", silent, "transient", "firm", "client.py call: CallError('Timed out.')"
    yield "answer is not JSON", garbage, "terminal", "soft", "client.py call: CallError(str(ValueError))"
    yield "another exclusive command runs", conflict, "transient", "firm", "exc.py ConflictError: one exclusive command is already running in background"
    yield "missing argument", bad_watcher, "terminal", "firm", "exc.py MessageError: a message is invalid"
    yield "bad endpoint", lambda: CircusClient(endpoint="nonsense"), "terminal", "firm", "zmq.ZMQError EINVAL"
