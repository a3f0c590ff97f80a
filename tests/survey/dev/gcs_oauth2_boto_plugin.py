import sys; sys.path.insert(0, "/tmp/survey/cases/dev_lib")
import devstub as S

LIBRARY = "gcs-oauth2-boto-plugin==3.3"
import json, time, logging; logging.disable(logging.CRITICAL)
import gcs_oauth2_boto_plugin.oauth2_client as O
def quick(f):
    old = time.sleep; time.sleep = lambda s: old(0)
    try: f()
    finally: time.sleep = old
def user(url):
    return quick(lambda: O.OAuth2UserAccountClient(url + "/token", "id", "secret", "refresh", access_token_cache=O.InMemoryTokenCache()).GetAccessToken())
def gce(url):
    def f():
        O.META_TOKEN_URI = url + "/token"; O.OAuth2GCEClient().FetchAccessToken()
    return quick(f)
F = "oauth2_client.py FetchAccessToken: "
def cases():
    yield "GCE metadata server refuses connections", lambda: gce(S.refused()), "transient", "firm", F + "GsAccessTokenRefreshError, docstring 'Transient error when requesting access token'; retried"
    yield "GCE metadata server closes the connection", lambda: gce(S.hangup()), "transient", "firm", F + "GsAccessTokenRefreshError, docstring 'Transient error when requesting access token'"
    yield "rate limited 403", lambda: user(S.http(403, "rate limited")), "transient", "soft", "on Python 3 an AttributeError of e.message hides it; " + F + "'Invalid response 403' is a rate limit: GsAccessTokenRefreshError"
    yield "invalid grant", lambda: user(S.http(400, json.dumps({"error": "invalid_grant"}))), "terminal", "firm", F + "GsInvalidRefreshTokenError"
    yield "token endpoint 503", lambda: user(S.http(503, "busy")), "transient", "soft", "on Python 3 an AttributeError of e.message hides HttpAccessTokenRefreshError(status=503)"
    yield "key file lacks fields", lambda: O.OAuth2JsonServiceAccountClient({"client_id": "x"}), "terminal", "firm", "oauth2_client.py: KeyError of the key file"
