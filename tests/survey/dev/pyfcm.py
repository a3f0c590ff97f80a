import sys; sys.path.insert(0, "/tmp/survey/cases/dev_lib")
import devstub as S

LIBRARY = "pyfcm==2.1.1"
import json, pyfcm.baseapi as B
from pyfcm import FCMNotification
from requests.adapters import HTTPAdapter
class F(FCMNotification):
    def _get_access_token(self): return "t"
def notify(url, timeout=2):
    class Cred: project_id = "p"
    f = F(service_account_file=None, credentials=Cred(), project_id="p"); f.custom_adapter = HTTPAdapter(max_retries=0); f._fcm_end_point = url + "/send"
    type(f).fcm_end_point = property(lambda s: s._fcm_end_point)
    return f.notify(fcm_token="x", notification_title="t", notification_body="b", timeout=timeout)
def a(status, body="{}", h=None): return lambda: notify(S.http(status, body, h))
P = "baseapi.py parse_response: "
def cases():
    yield "503", a(503), "transient", "firm", P + "FCMServerError 'The server might be temporarily unavailable'; docstring FCM is temporary not available"
    yield "429", a(429), "transient", "firm", P + "FCMServerError; FCM docs QUOTA_EXCEEDED 429: retry with backoff"
    yield "500", a(500), "transient", "soft", P + "FCMServerError: FCM is temporary not available"
    yield "401", a(401), "terminal", "firm", P + "AuthenticationError"
    yield "400", a(400, '{"error": {"status": "INVALID_ARGUMENT"}}'), "terminal", "firm", P + "InvalidDataError"
    yield "404 unregistered", a(404), "terminal", "firm", P + "FCMNotRegisteredError"
    yield "403 sender mismatch", a(403), "terminal", "firm", P + "FCMSenderIdMismatchError"
    yield "timeout", lambda: notify(S.silent(), 0.3), "transient", "firm", "requests ReadTimeout"
