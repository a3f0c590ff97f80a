import sys; sys.path.insert(0, "/tmp/survey/cases/dev_lib")
import devstub as S

LIBRARY = "monday==2.2.1"
import json
from monday.graphqlclient.client import GraphQLClient
def q(url, timeout=2): return GraphQLClient(url, timeout=timeout).execute("query { me { id } }")
def a(status, body="{}"): return lambda: q(S.http(status, body))
def err(message, code, **ext): return a(200, json.dumps({"errors": [{"message": message, "extensions": {"code": code, **ext}}]}))
C = "monday/graphqlclient/client.py: urllib3.exceptions.HTTPError('HTTP status: body'); "
Q = "client.py MondayQueryError(message, original_errors); developer.monday.com api-reference, error handling: "
def cases():
    yield "503", a(503, "Service Unavailable"), "transient", "firm", C + "503"
    yield "429", a(429, json.dumps({"error_message": "Rate Limit Exceeded.", "status_code": 429})), "transient", "firm", C + "429"
    yield "401", a(401, json.dumps({"errors": ["Not Authenticated"]})), "terminal", "firm", C + "401"
    yield "400", a(400, json.dumps({"errors": [{"message": "Parse error"}]})), "terminal", "firm", C + "400"
    yield "complexity budget exhausted", err("Complexity budget exhausted, query cost 30001 budget remaining 29000 out of 1000000 reset in 12 seconds", "COMPLEXITY_BUDGET_EXHAUSTED", retry_in_seconds=12), "transient", "firm", Q + "COMPLEXITY_BUDGET_EXHAUSTED, a budget per minute"
    yield "max concurrency exceeded", err("Max concurrency exceeded", "maxConcurrencyExceeded"), "transient", "firm", Q + "maxConcurrencyExceeded, retry later"
    yield "unauthorized user", err("User unauthorized to perform action", "UserUnauthorizedException"), "terminal", "firm", Q + "UserUnauthorizedException"
    yield "invalid argument", err("Invalid argument", "InvalidArgumentException"), "terminal", "firm", Q + "InvalidArgumentException"
    yield "timeout", lambda: q(S.silent(), 0.3), "transient", "firm", "urllib3 MaxRetryError of ReadTimeoutError"
