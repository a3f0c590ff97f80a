import sys; sys.path.insert(0, "/tmp/survey/cases/dev_lib")
import devstub as S

LIBRARY = "seeuletter==1.2.0"
import json, seeuletter
def get(url): seeuletter.api_key = "k"; seeuletter.api_base = url + "/"; return seeuletter.Letter.retrieve("id")
def a(status, text="m"): return lambda: get(S.http(status, json.dumps({"error": {"message": text}})))
P = "api_requestor.py parse_response: "
def cases():
    yield "504", a(504), "transient", "firm", P + "504 APIConnectionError"
    yield "503", a(503, "Service unavailable"), "transient", "firm", P + "APIError, http_status 503"
    yield "429", a(429, "Too many requests"), "transient", "firm", P + "APIError, http_status 429"
    yield "401", a(401), "terminal", "firm", P + "AuthenticationError"
    yield "404", a(404), "terminal", "firm", P + "InvalidRequestError"
    yield "422", a(422), "terminal", "firm", P + "InvalidRequestError"
    yield "403", a(403), "terminal", "firm", P + "APIError, http_status 403"
    yield "refused", lambda: get(S.refused()), "transient", "firm", "requests ConnectionError"
