import sys; sys.path.insert(0, "/tmp/survey/cases/dev_lib")
import devstub as S

LIBRARY = "ai-core-sdk==2.6.2"
import json
from ai_api_client_sdk.helpers.rest_client import RestClient
from ai_api_client_sdk.helpers.authenticator import Authenticator
def rest(url, method="post", t=2): return getattr(RestClient(url, lambda: "Bearer x", read_timeout=t, connect_timeout=t, num_request_retries=0), method)("/lm/deployments")
def body(code): return json.dumps({"error": {"code": code, "message": "m", "requestId": "1"}})
def a(status, code="x"): return lambda: rest(S.http(status, body(code)))
def auth(url): return Authenticator(url + "/oauth/token", "id", client_secret="s").get_token()
R = "ai_api_client_sdk rest_client.py (retries 429, 500, 502, 503, 504): "
A = "ai_api_client_sdk authenticator.py: "
def cases():
    yield "503 of a POST", a(503), "transient", "firm", R + "AIAPIServerException(status_code=503)"
    yield "429 after retries of a GET", lambda: rest(S.http(429, body("x")), "get"), "transient", "firm", R + "requests RetryError"
    yield "401", lambda: rest(S.http(401, "no")), "terminal", "firm", R + "AIAPIAuthorizationException"
    yield "404", a(404), "terminal", "firm", R + "AIAPINotFoundException"
    yield "412", a(412), "terminal", "firm", R + "AIAPIPreconditionFailedException"
    yield "timeout", lambda: rest(S.silent(), t=0.3), "transient", "firm", "requests ReadTimeout"
    yield "token server refuses connections", lambda: auth(S.refused()), "transient", "firm", A + "AIAPIAuthenticatorException(status_code=500) from requests ConnectionError"
    yield "token server 503", lambda: auth(S.http(503, "busy")), "transient", "firm", A + "AIAPIAuthenticatorServerException(status_code=503)"
    yield "token server 408", lambda: auth(S.http(408, "x")), "transient", "firm", A + "AIAPIAuthenticatorTimeoutException"
    yield "token server 401", lambda: auth(S.http(401, "x")), "terminal", "firm", A + "AIAPIAuthenticatorAuthorizationException"
