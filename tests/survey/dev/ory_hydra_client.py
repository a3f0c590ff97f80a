import sys; sys.path.insert(0, "/tmp/survey/cases/dev_lib")
import devstub as S

LIBRARY = "ory-hydra-client==25.4.0"
import json, ory_hydra_client as H
def get(url, timeout=2):
    c = H.Configuration(host=url, retries=False)
    return H.OAuth2Api(H.ApiClient(c)).get_o_auth2_client("id", _request_timeout=timeout)
def a(status): return lambda: get(S.http(status, json.dumps({"error": "m", "error_description": "d"})))
F = "exceptions.py ApiException.from_response: "
def cases():
    yield "503", a(503), "transient", "firm", F + "ServiceException status 503"
    yield "429", a(429), "transient", "firm", F + "ApiException status 429; Ory docs: rate limits"
    yield "timeout", lambda: get(S.silent(), 0.3), "transient", "firm", "urllib3 ReadTimeoutError"
    yield "refused", lambda: get(S.refused()), "transient", "firm", "urllib3 NewConnectionError"
    yield "401", a(401), "terminal", "firm", F + "UnauthorizedException"
    yield "404", a(404), "terminal", "firm", F + "NotFoundException"
    yield "400", a(400), "terminal", "firm", F + "BadRequestException"
    yield "bad certificate", lambda: get(S.http(200, "{}", tls=True)), "terminal", "firm", "rest.py: ApiException(status=0, reason=SSLError …)"
