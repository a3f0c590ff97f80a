import sys; sys.path.insert(0, "/tmp/survey/cases/dev_lib")
import devstub as S

LIBRARY = "argilla==2.8.0"
import httpx, json
from argilla._api._client import APIClient
def get(url, timeout=2): return APIClient(api_url=url, api_key="k", timeout=timeout, retries=0)
def a(status): return lambda: get(S.http(status, json.dumps({"detail": "m"})))
E = "_exceptions/_api.py api_error_handler: "
def cases():
    yield "503", a(503), "transient", "firm", E + "ArgillaAPIError(status_code=503)"
    yield "429", a(429), "transient", "firm", E + "ArgillaAPIError(status_code=429)"
    yield "timeout", lambda: get(S.silent(), 0.3), "transient", "firm", "httpx ReadTimeout"
    yield "refused", lambda: get(S.refused()), "transient", "firm", "httpx ConnectError"
    yield "wrong key", a(401), "terminal", "firm", E + "UnauthorizedError, then ArgillaCredentialsError"
    yield "403", a(403), "terminal", "firm", E + "ForbiddenError"
    yield "409", a(409), "terminal", "firm", E + "ConflictError: resource or entity already exists"
    yield "422", a(422), "terminal", "firm", E + "UnprocessableEntityError"
