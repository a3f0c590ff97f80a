import sys; sys.path.insert(0, "/tmp/survey/cases/dev_lib")
import devstub as S

LIBRARY = "conductor-python==2.0.0"
import json, logging; logging.disable(logging.CRITICAL)
import httpx
from conductor.client.http.rest import RESTClientObject
from conductor.client.worker.exception import NonRetryableException
from conductor.client.ai.agent_errors import _raise_api_error
def get(url, timeout=2, method="GET"):
    c = RESTClientObject(connection=httpx.Client(timeout=timeout))
    return c.GET(url + "/api/x", _request_timeout=timeout) if method == "GET" else c.POST(url + "/api/x", headers={"Content-Type": "application/json"}, body={}, _request_timeout=timeout)
def a(status, body="{}"): return lambda: get(S.http(status, body))
def agent(status):
    def f():
        import requests
        try: requests.get(S.http(status, "m")).raise_for_status()
        except Exception as e: _raise_api_error(e, "u")
    return f
def worker(): raise NonRetryableException("bad order")
R = "client/http/rest.py request: "
def cases():
    yield "503", a(503), "transient", "firm", R + "ApiException(http_resp), status 503"
    yield "429", a(429), "transient", "firm", R + "ApiException(http_resp), status 429"
    yield "timeout", lambda: get(S.silent(), 0.3), "transient", "firm", R + "ApiException(status=0, reason='Request timeout: …')"
    yield "refused", lambda: get(S.refused()), "transient", "firm", R + "ApiException(status=0, reason='Connection error: …')"
    yield "server closes the connection of a POST", lambda: get(S.hangup(), method="POST"), "transient", "firm", R + "ApiException(status=0, transient=True): a recoverable transport-layer hiccup"
    yield "token expired", a(401, json.dumps({"error": "EXPIRED_TOKEN"})), "terminal", "soft", R + "AuthorizationException, token_expired; the client renews the token"
    yield "forbidden", a(403, json.dumps({"error": "INVALID_TOKEN"})), "terminal", "firm", R + "AuthorizationException"
    yield "404", a(404, json.dumps({"message": "no such workflow"})), "terminal", "firm", R + "ApiException, is_not_found"
    yield "worker says not to retry", worker, "terminal", "firm", "client/worker/exception.py NonRetryableException; docs/worker: ends with FAILED_WITH_TERMINAL_ERROR"
    yield "agent api 503", agent(503), "transient", "firm", "client/ai/agent_errors.py AgentAPIError(503)"
