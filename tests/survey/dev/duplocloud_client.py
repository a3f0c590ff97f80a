import sys; sys.path.insert(0, "/tmp/survey/cases/dev_lib")
import devstub as S

LIBRARY = "duplocloud-client==0.4.5"
from duplocloud.controller import DuploCtl
def get(url, timeout=2):
    d = DuploCtl(host=url, token="t", tenant="x", home_dir="/tmp/survey/duplo"); d.timeout = timeout; type(d).host = property(lambda s: url)
    return d.load_client().get("adminproxy/x")
def a(status, text="m"): return lambda: get(S.http(status, text, ctype="text/plain"))
def wait():
    from duplocloud.errors import DuploStillWaiting
    raise DuploStillWaiting("Timed out waiting")
V = "client.py _validate_response: "
def cases():
    yield "timeout", lambda: get(S.silent(), 0.3), "transient", "firm", "errors.py DuploConnectionError: a network/connectivity error; code 503"
    yield "refused", lambda: get(S.refused()), "transient", "firm", "errors.py DuploConnectionError"
    yield "503", a(503), "transient", "firm", V + "DuploError(…, 503)"
    yield "429", a(429), "transient", "firm", V + "DuploError(…, 429)"
    yield "401", a(401), "terminal", "firm", V + "DuploError(…, 401)"
    yield "403", a(403), "terminal", "firm", V + "DuploError('Unauthorized', 403)"
    yield "404", a(404), "terminal", "firm", V + "DuploNotFound"
    yield "waiting timed out", wait, "transient", "soft", "errors.py DuploStillWaiting, code 408; constructed as resource.py line 90"
