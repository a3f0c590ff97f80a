import sys; sys.path.insert(0, "/tmp/survey/cases/dev_lib")
import devstub as S

LIBRARY = "django-auth-adfs==1.16.0"
import django, json, requests
from django.conf import settings
if not settings.configured:
    settings.configure(INSTALLED_APPS=["django.contrib.auth", "django.contrib.contenttypes"], DATABASES={}, SECRET_KEY="x",
        AUTH_ADFS={"SERVER": "localhost", "CLIENT_ID": "c", "RELYING_PARTY_ID": "r", "AUDIENCE": "a", "CA_BUNDLE": False, "CLAIM_MAPPING": {}, "TIMEOUT": 1, "RETRIES": 0})
    django.setup()
import logging; logging.getLogger("django_auth_adfs").disabled = True
from django_auth_adfs.backend import AdfsBaseBackend
from django_auth_adfs.config import provider_config, settings as adfs
def ms(status, body="{}"): return lambda: AdfsBaseBackend()._ms_request(requests.post, S.http(status, body) + "/token", data={})
def load(server):
    def f():
        adfs.SERVER = server; provider_config._config_timestamp = None; provider_config.load_config()
    return f
B = "backend.py _ms_request: "
def cases():
    yield "token endpoint refuses the code", ms(400, json.dumps({"error_description": "invalid code"})), "terminal", "firm", B + "PermissionDenied of a 400"
    yield "MFA required", ms(400, json.dumps({"error_description": "AADSTS50076: m"})), "terminal", "firm", B + "MFARequired"
    yield "token endpoint 503", ms(503, "busy"), "transient", "soft", B + "PermissionDenied of every other status; the exception does not hold it"
    yield "ADFS refuses connections", load(f"127.0.0.1:{S.closed_port()}"), "transient", "firm", "config.py _load_openid_config: requests ConnectionError, only HTTPError is caught"
    yield "token endpoint does not answer", lambda: AdfsBaseBackend()._ms_request(requests.post, S.silent() + "/token"), "transient", "firm", "requests ReadTimeout"
    yield "ADFS has a self-signed certificate", load(S.http(200, "{}", tls=True).split("//")[1]), "terminal", "firm", "config.py _load_openid_config: requests SSLError, certificate verify failed"
