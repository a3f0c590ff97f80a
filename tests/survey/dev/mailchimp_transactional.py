import sys; sys.path.insert(0, "/tmp/survey/cases/dev_lib")
import devstub as S

LIBRARY = "mailchimp_transactional==1.4.1"
import json, mailchimp_transactional as M
def ping(url, timeout=2):
    c = M.Client("key"); c.api_client.host = url; c.api_client.timeout = timeout; c.set_timeout(timeout) if hasattr(c, "set_timeout") else None
    return c.users.ping()
def err(status, name, code, text="m"): return lambda: ping(S.http(status, json.dumps({"status": "error", "code": code, "name": name, "message": text})))
D = "mailchimp.com/developer/transactional/docs/error-glossary: "
def cases():
    yield "invalid key", err(401, "Invalid_Key", -1, "Invalid API key"), "terminal", "firm", D + "Invalid_Key"
    yield "validation error", err(422, "ValidationError", -2), "terminal", "firm", D + "ValidationError"
    yield "unknown template", err(404, "Unknown_Template", 5), "terminal", "firm", D + "Unknown_Template"
    yield "429", err(429, "TooManyRequests", -1, "Too many concurrent requests"), "transient", "firm", "docs: limit of 10 connections, 429"
    yield "service unavailable", err(503, "ServiceUnavailable", -4), "transient", "firm", D + "ServiceUnavailable: the subsystem is down for maintenance or an unexpected outage"
    yield "general error 500", err(500, "GeneralError", -99), "terminal", "soft", D + "GeneralError: an unexpected error; reports to Mandrill"
    yield "timeout", lambda: ping(S.silent(), 0.3), "transient", "firm", "requests ReadTimeout"
    yield "502 page", lambda: ping(S.http(502, "<html>502 Bad Gateway</html>", ctype="text/html")), "transient", "firm", "api_client.py ApiClientError(text, status_code)"
