import sys; sys.path.insert(0, "/tmp/survey/cases/dev_lib")
import devstub as S

LIBRARY = "discord-py-self==2.1.0"
# It shares the package name with discord-py, so it is loaded from a folder of its own and taken out of sys.modules again.
def load():
    old = {k: sys.modules.pop(k) for k in list(sys.modules) if k == "discord" or k.startswith("discord.")}
    sys.path.insert(0, "/tmp/survey/dcself")
    try: import discord; return discord
    finally:
        sys.path.remove("/tmp/survey/dcself")
        for k in [k for k in sys.modules if k == "discord" or k.startswith("discord.")]: del sys.modules[k]
        sys.modules.update(old)
D = load(); E = D.errors
import json
from curl_cffi import requests as R
def answer(cls, status, data):
    def f():
        r = R.get(S.http(status, json.dumps(data))); r.status = r.status_code     # http.py request sets it so
        raise cls(r, data)
    return f
def limited(): raise E.RateLimited(120.0)
def closed(code):
    def f(): raise E.ConnectionClosed(code, "")
    return f
H = "constructed as http.py request raises it, with a real curl_cffi response; "
def cases():
    yield "rate limit longer than the maximum", limited, "transient", "firm", "constructed as http.py line 546; errors.py RateLimited"
    yield "503", answer(E.DiscordServerError, 503, {"code": 0, "message": "m"}), "transient", "firm", H + "DiscordServerError"
    yield "429", answer(E.HTTPException, 429, {"code": 0, "message": "You are being rate limited."}), "transient", "firm", H + "HTTPException after all retries"
    yield "captcha required", answer(E.CaptchaRequired, 400, {"captcha_key": ["captcha-required"], "captcha_service": "hcaptcha"}), "terminal", "firm", H + "CaptchaRequired: a captcha is required and is not handled"
    yield "forbidden", answer(E.Forbidden, 403, {"code": 50001, "message": "Missing Access"}), "terminal", "firm", H + "Forbidden"
    yield "not found", answer(E.NotFound, 404, {"code": 10003, "message": "Unknown Channel"}), "terminal", "firm", H + "NotFound"
    yield "gateway closed 4004 authentication failed", closed(4004), "terminal", "firm", "Discord docs close event codes: 4004, no reconnect; constructed as gateway.py"
    yield "gateway closed 1006", closed(1006), "transient", "firm", "RFC 6455 1006 abnormal closure; constructed as gateway.py"
