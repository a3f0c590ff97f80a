import sys; sys.path.insert(0, "/tmp/survey/cases/dev_lib")
import devstub as S

LIBRARY = "swarmauri_base==0.10.0"
from swarmauri_base.pipelines.PipelineBase import PipelineBase
from swarmauri_base.secrets import resolve_secret_ref
from swarmauri_base.transports.TransportBase import _require_caps
from swarmauri_core.transports.capabilities import TransportCapabilities
def pipeline(task):
    def f():
        p = PipelineBase(); p.add_task(task); p.execute()
    return f
def connect():
    import socket; socket.create_connection(("127.0.0.1", S.closed_port()), 1)
def wrong(): return int("x")
def caps():
    from swarmauri_core.transports.enums import Cast
    import types
    _require_caps(types.SimpleNamespace(casts=frozenset(), features=frozenset()), casts={list(Cast)[0]})
P = "pipelines/PipelineBase.py execute: RuntimeError('Pipeline execution failed: …') while handling "
def cases():
    yield "pipeline task cannot connect", pipeline(connect), "transient", "soft", P + "ConnectionRefusedError"
    yield "pipeline task fails", pipeline(wrong), "terminal", "firm", P + "ValueError"
    yield "secret not set", lambda: resolve_secret_ref("env:NO_SUCH_SECRET_X"), "terminal", "firm", "secrets/__init__.py KeyError"
    yield "transport lacks a capability", caps, "terminal", "firm", "transports/TransportBase.py CapabilityError"
