import sys; sys.path.insert(0, "/tmp/survey/cases/dev_lib")
import devstub as S

LIBRARY = "botbuilder-schema==4.17.1"
import json
from botbuilder.schema import ErrorResponseException
from msrest import ServiceClient, Configuration, Deserializer
import botbuilder.schema as schema
D = Deserializer({k: v for k, v in vars(schema).items() if isinstance(v, type)})
def send(url, error_code="x"):
    c = Configuration(url); c.retry_policy.policy.total = 0; c.retry_policy.policy.status_forcelist = set(); client = ServiceClient(None, c)
    r = client.send(client.get("/v3/conversations"), stream=False)
    if r.status_code not in [200]: raise ErrorResponseException(D, r)
def a(status, code, headers=None): return lambda: send(S.http(status, json.dumps({"error": {"code": code, "message": "m"}}), headers))
W = "raised as in botframework-connector operations/_conversations_operations.py: raise models.ErrorResponseException(self._deserialize, response); "
def cases():
    yield "429", a(429, "Throttled"), "transient", "firm", W + "learn.microsoft.com Teams rate limit: retry with backoff on 429"
    yield "502", a(502, "BadGateway"), "transient", "firm", W + "learn.microsoft.com Teams rate limit: 412, 502, 504 may be retried"
    yield "503", a(503, "ServiceUnavailable"), "transient", "firm", W + "503"
    yield "401", a(401, "Unauthorized"), "terminal", "firm", W + "401"
    yield "403 bot not in roster", a(403, "BotNotInConversationRoster"), "terminal", "firm", W + "403"
    yield "404 conversation", a(404, "ConversationNotFound"), "terminal", "firm", W + "404"
    yield "400", a(400, "BadSyntax"), "terminal", "firm", W + "400"
    yield "412 precondition failed", a(412, "PreconditionFailed"), "transient", "soft", W + "learn.microsoft.com Teams rate limit: 412 may be retried"
