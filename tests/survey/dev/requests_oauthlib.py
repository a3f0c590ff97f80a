import sys; sys.path.insert(0, "/tmp/survey/cases/dev_lib")
import devstub as S

LIBRARY = "requests-oauthlib==2.0.0"
import os, json
os.environ["OAUTHLIB_INSECURE_TRANSPORT"] = "1"
from requests_oauthlib import OAuth2Session, OAuth1Session
from oauthlib.oauth2 import BackendApplicationClient
DOC = "oauthlib oauth2/rfc6749/errors.py docstring of "
def fetch(url, **k):
    return OAuth2Session(client=BackendApplicationClient("id")).fetch_token(url + "/token", client_secret="s", **k)
def err(code, status=400): return S.http(status, json.dumps({"error": code}))
def expired():
    s = OAuth2Session("id", token={"access_token": "x", "token_type": "Bearer", "expires_in": -10}); return s.get(S.http(200, "{}") + "/x")
def one():
    OAuth1Session("k", client_secret="s").fetch_request_token(S.http(401, "bad signature") + "/r")
def one503():
    OAuth1Session("k", client_secret="s").fetch_request_token(S.http(503, "busy") + "/r")
def cases():
    yield "temporarily_unavailable", lambda: fetch(err("temporarily_unavailable", 503)), "transient", "firm", DOC + "TemporarilyUnavailableError: temporary overloading or maintenance"
    yield "invalid_client", lambda: fetch(err("invalid_client", 401)), "terminal", "firm", DOC + "InvalidClientError"
    yield "server_error", lambda: fetch(err("server_error", 500)), "transient", "soft", DOC + "ServerError: unexpected condition, a 500"
    yield "custom error slow_down", lambda: fetch(err("slow_down")), "transient", "soft", "RFC 8628 3.5: slow_down, polling continues; requests_oauthlib raises CustomOAuth2Error"
    yield "token endpoint does not answer", lambda: fetch(S.silent(), timeout=0.3), "transient", "firm", "requests ReadTimeout"
    yield "expired token without refresh", expired, "terminal", "firm", DOC + "TokenExpiredError; oauth2_session.py request(): raised when there is no refresh url"
    yield "OAuth1 request token denied 401", one, "terminal", "firm", "oauth1_session.py TokenRequestDenied, 401"
    yield "OAuth1 request token 503", one503, "transient", "firm", "oauth1_session.py TokenRequestDenied with status_code 503"
