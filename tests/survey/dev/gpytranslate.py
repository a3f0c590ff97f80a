import sys; sys.path.insert(0, "/tmp/survey/cases/dev_lib")
import devstub as S

LIBRARY = "gpytranslate==2.0.0"
import gpytranslate
def tr(url, timeout=2):
    return S.run(gpytranslate.Translator(url=url + "/t", timeout=timeout).translate("hallo"))
T = "gpytranslate.py translate: TranslationError(e) from None, args[0] is the real exception; "
def cases():
    yield "refused", lambda: tr(S.refused()), "transient", "firm", T + "httpx ConnectError"
    yield "timeout", lambda: tr(S.silent(), 0.3), "transient", "firm", T + "httpx ReadTimeout"
    yield "server closes the connection", lambda: tr(S.hangup()), "transient", "firm", T + "httpx RemoteProtocolError"
    yield "bad certificate", lambda: tr(S.http(200, "{}", tls=True)), "terminal", "firm", T + "httpx ConnectError of a certificate"
    yield "429 page", lambda: tr(S.http(429, "<html>sorry", ctype="text/html")), "transient", "soft", T + "JSONDecodeError, the status is lost"
    yield "detect of a number", lambda: S.run(gpytranslate.Translator().detect(5)), "terminal", "firm", "gpytranslate.py ValueError: only str, list and dict"
