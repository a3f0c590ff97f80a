"""What the probed types of HTTP libraries, clouds and services carry, and what is made of it."""

from enum import Enum
from types import SimpleNamespace

from support.errors.synthetic import answer, pretend

T, X = "transient", "terminal"


class Code(Enum):
    """As ``grpc.StatusCode``: the number, and a text."""

    UNAVAILABLE = (14, "unavailable")
    ABORTED = (10, "aborted")
    INTERNAL = (13, "internal")
    NOT_FOUND = (5, "not found")


def cases():
    """(name, instance, verdict, rule) for each probed type: at least one of either verdict."""
    yield from _web()
    yield from _grpc()
    yield from _aws()
    yield from _google()
    yield from _azure()
    yield from _models()
    yield from _payments()
    yield from _others()


def _web():
    for module in ("requests.exceptions", "botocore.vendored.requests.exceptions"):
        for name in (f"{module}.HTTPError", f"{module}.RequestException"):
            yield from _statuses(name, "response", response=True)
            yield name, pretend(name, response=None), X, "default"
    for name in ("httpx.HTTPStatusError", "httpx2.HTTPStatusError"):
        yield from _statuses(name, "response", response=True)
    yield from _statuses("urllib.error.HTTPError", "code")
    yield from _statuses("xmlrpc.client.ProtocolError", "errcode")
    yield from _statuses("aiohttp.client_exceptions.ClientResponseError", "status")
    for module in ("urllib3", "requests.packages.urllib3",
                   "botocore.vendored.requests.packages.urllib3"):  # fmt: skip
        name = f"{module}.exceptions.ResponseError"
        yield name, pretend(name, "too many 503 error responses"), T, "http.retries"
        yield name, pretend(name, "too many 404 error responses"), X, "http.retries"
        yield name, pretend(name, "too many redirects"), X, "http.retries"
        yield name, pretend(name, "too many error responses"), X, "http.retries"
    for name in ("httpcore.ProxyError", "httpcore2.ProxyError"):
        yield name, pretend(name, "407 Proxy Authentication Required"), X, "http.proxy"
        yield name, pretend(name, "503 Service Unavailable"), T, "http.proxy"
    for name in ("httpx.ConnectError", "httpcore.ConnectError", "httpx2.ConnectError",
                 "httpcore2.ConnectError", "urllib3.exceptions.NameResolutionError"):  # fmt: skip
        yield name, pretend(name, "[SSL: CERTIFICATE_VERIFY_FAILED] x"), X, "tls.certificate"
        yield name, pretend(name, "[Errno -2] Name or service not known"), X, "dns.lookup"
        yield name, pretend(name, "[Errno 111] Connection refused"), T, "http.network"
    yield from _websocket_client()
    name = "pycurl.error"
    for code in (7, 16, 18, 28, 52, 55, 56, 92):
        yield name, pretend(name, code, "a text"), T, "curl.code"
    for code in (1, 3, 5, 6, 9, 22, 23, 35, 47, 51, 58, 60, 77, 90):
        yield name, pretend(name, code, "a text"), X, "curl.code"
    yield name, pretend(name, 22, "The requested URL returned error: 503"), T, "http.status"
    yield name, pretend(name, 22, "The requested URL returned error: 404"), X, "http.status"
    yield name, pretend(name, 22, "The requested URL returned error: 503 Slow"), T, "http.status"
    yield name, pretend(name, 56, "CONNECT tunnel failed, response 407"), X, "http.proxy"
    yield (
        name,
        pretend(name, 56, "Received HTTP code 503 from proxy after CONNECT"),
        T,
        "http.proxy",
    )
    yield name, pretend(name, 7, "CONNECT tunnel failed, response 407"), X, "http.proxy"
    yield name, pretend(name, 35, "Send failure: Broken pipe"), T, "curl.code"
    yield name, pretend(name, 35, "sslv3 alert handshake failure"), X, "curl.code"
    yield name, pretend(name, 35, "OpenSSL SSL_connect: Connection reset by peer"), T, "curl.code"
    yield name, pretend(name, "no code"), X, "default"
    yield name, pretend(name), X, "default"
    for name in ("exceptions.InvalidStatus", "exceptions.InvalidProxyStatus",
                 "exceptions.InvalidStatusCode", "exceptions.AbortHandshake",
                 "legacy.exceptions.InvalidStatusCode", "legacy.exceptions.AbortHandshake"):  # fmt: skip
        yield from _statuses(f"websockets.{name}", "response", response=True)
        yield f"websockets.{name}", pretend(f"websockets.{name}"), X, "websocket.handshake"
    name = "websockets.exceptions.ConnectionClosed"
    for code in (1001, 1005, 1006, 1011, 1012, 1013, 1014):
        yield name, pretend(name, rcvd=_frame(code), sent=None), T, "websocket.close"
    for code in (1000, 1002, 1003, 1007, 1008, 1009, 1010, 3000, 4001):
        yield name, pretend(name, rcvd=_frame(code), sent=None), X, "websocket.close"
    yield name, pretend(name, rcvd=None, sent=None), T, "websocket.close"
    yield name, pretend(name, rcvd=None, sent=_frame(1009)), X, "websocket.close"
    yield name, pretend(name, rcvd=_frame(1012), sent=_frame(1000)), T, "websocket.close"
    for name in (
        "websockets.exceptions.InvalidMessage",
        "websockets.exceptions.InvalidProxyMessage",
    ):
        cut, strange = pretend(name), pretend(name)
        cut.__cause__, strange.__cause__ = EOFError("closed"), ValueError("no status line")
        yield name, cut, T, "websocket.handshake"
        yield name, strange, X, "websocket.handshake"


def _frame(code):
    return SimpleNamespace(code=code)


def _statuses(name, attribute, *, response=False, passing=503, lasting=404):
    for status, verdict in ((passing, T), (lasting, X)):
        carried = answer(status) if response else status
        yield name, pretend(name, **{attribute: carried}), verdict, "http.status"


def _websocket_client():
    name = "websocket._exceptions.WebSocketConnectionClosedException"
    yield name, pretend(name, "Connection to remote host was lost."), T, "websocket.close"
    yield name, pretend(name, "x", status_code=1012), T, "websocket.close"
    yield name, pretend(name, "x", status_code=1008), X, "websocket.close"
    name = "websocket._exceptions.WebSocketBadStatusException"
    yield from _statuses(name, "status_code")
    yield name, pretend(name, "Handshake status 101"), X, "websocket.handshake"
    name = "websocket._exceptions.WebSocketProxyException"
    told = "failed CONNECT via proxy status: "
    yield name, pretend(name, f"{told}503"), T, "http.proxy"
    yield name, pretend(name, f"{told}407"), X, "http.proxy"
    yield name, pretend(name, "x", cause=ConnectionResetError()), T, "os.network"


def _grpc():
    name = "grpc.RpcError"
    for code in ("UNAVAILABLE", "ABORTED"):
        yield name, _rpc(name, Code[code]), T, "grpc.code"
    for code in ("INTERNAL", "NOT_FOUND"):
        yield name, _rpc(name, Code[code]), X, "grpc.code"
    untrusted = "Ssl handshake failed: CERTIFICATE_VERIFY_FAILED: self-signed"
    yield name, _rpc(name, Code.UNAVAILABLE, untrusted), X, "tls.certificate"
    yield name, _rpc(name, "no such code"), X, "default"
    yield name, pretend(name, code=14), X, "default"
    name = "grpclib.exceptions.GRPCError"
    yield name, pretend(name, status=14), T, "grpc.code"
    yield name, pretend(name, status=3), X, "grpc.code"
    yield name, pretend(name, status=99), X, "default"


def _rpc(name, code, details=""):
    return pretend(name, code=lambda: code, details=lambda: details)


def _aws():
    name = "botocore.exceptions.ClientError"
    for code in ("Throttling", "SlowDown", "RequestTimeout", "internalServerException",
                 "TransactionConflictException", "ServiceUnavailable"):  # fmt: skip
        yield name, pretend(name, response=_aws_answer(code, 400)), T, "aws.code"
    for code in ("AccessDenied", "NoSuchKey", "ItemCollectionSizeLimitExceededException",
                 "ConditionalCheckFailedException", "ExpiredToken"):  # fmt: skip
        yield name, pretend(name, response=_aws_answer(code, 400)), X, "aws.code"
    yield name, pretend(name, response=_aws_answer("Whatever", 500)), T, "aws.code"
    yield name, pretend(name, response=_aws_answer("KMSAccessDeniedException", 502)), X, "aws.code"
    yield name, pretend(name, response={"Error": {"Code": "503"}}), T, "aws.code"
    yield name, pretend(name, response={"Error": {"Code": "404"}}), X, "aws.code"
    yield name, pretend(name, response={"Error": {"Code": "NoSuchKey"}}), X, "aws.code"
    yield name, pretend(name, response={}), X, "default"
    for reasons, verdict in (
        (["None", "TransactionConflict"], T),
        (["ThrottlingError", "TransactionConflict"], T),
        (["TransactionConflict", "ConditionalCheckFailed"], X),
        (["None"], X),
    ):
        cancelled = _aws_answer("TransactionCanceledException", 400)
        cancelled["CancellationReasons"] = [{"Code": reason} for reason in reasons]
        yield name, pretend(name, response=cancelled), verdict, "aws.code"
    name = "botocore.exceptions.WaiterError"
    yield name, pretend(name, kwargs={"reason": "Max attempts exceeded"}), T, "aws.waiter"
    throttled = {"reason": "An error occurred", "x": 1}
    yield (
        name,
        pretend(name, kwargs=throttled, last_response=_aws_answer("Throttling", 400)),
        T,
        "aws.code",
    )
    yield name, pretend(name, last_response=_aws_answer("AccessDenied", 403)), X, "aws.code"
    yield name, pretend(name, last_response={"State": "failed"}), X, "aws.waiter"


def _aws_answer(code, status):
    return {"Error": {"Code": code}, "ResponseMetadata": {"HTTPStatusCode": status}}


def _google():
    name = "google.api_core.exceptions.GoogleAPICallError"
    yield name, pretend(name, grpc_status_code=Code.ABORTED, code=409), T, "grpc.code"
    yield name, pretend(name, grpc_status_code=Code.INTERNAL, code=500), T, "grpc.code"
    yield name, pretend(name, grpc_status_code=Code.NOT_FOUND, code=404), X, "grpc.code"
    yield name, pretend(name, code=500), T, "http.status"
    yield name, pretend(name, code=409), X, "http.status"
    yield (
        name,
        pretend(name, code=403, errors=[{"reason": "rateLimitExceeded"}]),
        T,
        "google.reason",
    )
    yield name, pretend(name, code=403, errors=[{"reason": "quotaExceeded"}]), X, "http.status"
    for name in ("google.auth.exceptions.RefreshError", "google.auth.exceptions.GoogleAuthError"):
        yield name, pretend(name, retryable=True), T, "google.auth"
        yield name, pretend(name, retryable=False), X, "default"
    for name in ("google.resumable_media.common.InvalidResponse",
                 "google.cloud.storage.exceptions.InvalidResponse"):  # fmt: skip
        yield from _statuses(name, "response", response=True, passing=500)
    name = "googleapiclient.errors.HttpError"
    body = b'{"error": {"errors": [{"reason": "userRateLimitExceeded"}]}}'
    yield name, pretend(name, resp=SimpleNamespace(status=500)), T, "http.status"
    yield name, pretend(name, resp=SimpleNamespace(status=403), content=body), T, "google.reason"
    yield name, pretend(name, resp=SimpleNamespace(status=403), content=b"{"), X, "http.status"
    yield name, pretend(name, resp=SimpleNamespace(status=403), content=b"[]"), X, "http.status"


def _azure():
    name = "azure.core.exceptions.HttpResponseError"
    yield from _statuses(name, "status_code", passing=500)
    yield name, pretend(name, status_code=449), T, "http.status"
    yield name, pretend(name, status_code=409), X, "http.status"
    yield name, pretend(name, status_code=None, inner_exception=TimeoutError()), T, "os.network"
    for short in ("ClientAuthenticationError", "ResourceExistsError", "ResourceNotFoundError",
                  "ResourceModifiedError", "ResourceNotModifiedError", "TooManyRedirectsError",
                  "DecodeError"):  # fmt: skip
        name = f"azure.core.exceptions.{short}"
        yield from _statuses(name, "status_code")
        yield name, pretend(name, status_code=None), X, "azure.request"


def _models():
    name = "openai.APIError"
    yield from _statuses(name, "status_code", passing=500)
    yield name, pretend(name, status_code=409), T, "http.status"
    yield name, pretend(name, status_code=429, code="insufficient_quota"), X, "openai.code"
    yield name, pretend(name, status_code=200, type="server_error"), T, "openai.code"
    yield name, _told(name, "x-should-retry", "false", status_code=503), X, "openai.header"
    refused = _told(name, "x-should-retry", "false", status_code=429, code="rate_limit_exceeded")
    yield name, refused, X, "openai.header"
    empty = _told(name, "x-should-retry", "true", status_code=429, code="insufficient_quota")
    yield name, empty, X, "openai.code"
    yield name, _told(name, "x-should-retry", "true", status_code=400), T, "openai.header"
    yield name, _told(name, "x-should-retry", "maybe", status_code=400), X, "http.status"
    yield from _statuses("openai.error.OpenAIError", "http_status", passing=500)
    for short in ("RateLimitError", "ServiceUnavailableError", "TryAgain", "Timeout"):
        name = f"openai.error.{short}"
        yield name, pretend(name), T, "openai.answer"
        yield name, pretend(name, code="insufficient_quota", http_status=429), X, "openai.code"
    name = "anthropic.APIError"
    yield from _statuses(name, "status_code", passing=529)
    yield name, pretend(name, status_code=500), T, "http.status"
    yield name, _told(name, "x-should-retry", "false", status_code=529), X, "anthropic.header"
    yield (
        name,
        pretend(name, status_code=429, error_code="enforced_spend_limit_reached"),
        X,
        "anthropic.code",
    )
    for kind, verdict in (("overloaded_error", T), ("invalid_request_error", X)):
        body = {"type": "error", "error": {"type": kind}}
        yield name, pretend(name, status_code=200, body=body), verdict, "anthropic.type"
    yield name, pretend(name, body="gone"), X, "default"
    yield from _statuses("cohere.core.api_error.ApiError", "status_code", passing=409)
    for module in ("errors", "utils._errors"):
        name = f"huggingface_hub.{module}.HfHubHTTPError"
        yield from _statuses(name, "response", response=True)


def _told(name, header, value, **attributes):
    return pretend(name, response=SimpleNamespace(headers={header: value}), **attributes)


def _payments():
    for module in ("stripe._error", "stripe.error"):
        name = f"{module}.StripeError"
        yield from _statuses(name, "http_status", passing=500)
        yield name, pretend(name, http_status=409), T, "http.status"
        yield name, pretend(name, http_status=400, code="rate_limit"), T, "stripe.code"
        said = {"Stripe-Should-Retry": "false"}
        yield name, pretend(name, http_status=500, headers=said), X, "stripe.header"
        name = f"{module}.RateLimitError"
        yield name, pretend(name, http_status=429), T, "stripe.rate"
        yield name, pretend(name, http_status=429, headers=said), X, "stripe.header"
        for short in ("CardError", "InvalidRequestError", "AuthenticationError",
                      "PermissionError", "IdempotencyError"):  # fmt: skip
            name = f"{module}.{short}"
            yield name, pretend(name, http_status=409), T, "http.status"
            yield name, pretend(name, http_status=402), X, "http.status"
            yield name, pretend(name), X, "stripe.answer"
        name = f"{module}.APIConnectionError"
        yield name, pretend(name, should_retry=True), T, "stripe.network"
        yield name, pretend(name, should_retry=False), X, "stripe.network"
    name = "braintree.exceptions.unexpected_error.UnexpectedError"
    yield name, pretend(name, "Unexpected HTTP_RESPONSE 502"), T, "http.status"
    yield name, pretend(name, "Unexpected HTTP_RESPONSE 418"), X, "http.status"
    yield name, pretend(name, "what 502"), X, "default"


def _microsoft():
    name = "msal.exceptions.MsalServiceError"
    for status, verdict in ((429, T), (500, T), (503, T), (400, X), (404, X)):
        yield name, pretend(name, f"HTTP Error: {status}"), verdict, "http.status"
    yield name, pretend(name, "invalid_grant: HTTP Error: 503"), X, "default"
    name = "msrest.exceptions.HttpOperationError"
    yield from _statuses(name, "response", response=True)
    yield name, pretend(name, response=answer(500)), T, "http.status"
    yield name, pretend(name, response=answer(409)), X, "http.status"


def _others():
    yield from _microsoft()
    for short in ("TwilioRestException", "TwilioServiceException"):
        name = f"twilio.base.exceptions.{short}"
        yield from _statuses(name, "status")
        yield name, pretend(name, status=400, code=503), X, "http.status"
    for module in ("slack_sdk.errors", "slack.errors"):
        name = f"{module}.SlackApiError"
        yield name, pretend(name, response=_slack("ratelimited", 429)), T, "slack.error"
        yield name, pretend(name, response=_slack("internal_error", 200)), T, "slack.error"
        yield name, pretend(name, response=_slack("channel_not_found", 200)), X, "slack.error"
        yield name, pretend(name, response={"error": "service_unavailable"}), T, "slack.error"
        yield name, pretend(name, response=_slack(None, 503)), T, "http.status"
        yield name, pretend(name, response="no answer"), X, "default"
    name = "telegram.error.NetworkError"
    yield name, pretend(name, "Internal Server Error (500)"), T, "telegram.network"
    yield name, pretend(name, "Too Many Requests (429)"), T, "telegram.network"
    yield name, pretend(name, "Request Entity Too Large"), X, "telegram.request"
    yield name, pretend(name, "URI Too Long (414). Parsing failed"), X, "telegram.request"
    name = "slack_sdk.errors.SlackTokenRotationError"
    inner = pretend("slack_sdk.errors.SlackApiError", response=_slack("ratelimited", 429))
    yield name, pretend(name, api_error=inner), T, "slack.error"
    inner = pretend("slack_sdk.errors.SlackApiError", response=_slack("invalid_auth", 200))
    yield name, pretend(name, api_error=inner), X, "slack.error"
    yield name, pretend(name, api_error="text"), X, "default"
    name = "github.GithubException.GithubException"
    yield from _statuses(name, "status")
    limited = {"X-RateLimit-Remaining": "0"}
    yield name, pretend(name, status=403, headers=limited), T, "http.status"
    yield name, pretend(name, status=403, headers={"Retry-After": "60"}), T, "http.status"
    yield name, pretend(name, status=None), X, "github.answer"
    yield from _statuses("gitlab.exceptions.GitlabError", "response_code")
    yield from _statuses("zeep.exceptions.TransportError", "status_code")
    yield from _statuses("googlemaps.exceptions.HTTPError", "status_code", passing=500)
    name = "googlemaps.exceptions.ApiError"
    for word in ("OVER_QUERY_LIMIT", "UNKNOWN_ERROR"):
        yield name, pretend(name, status=word), T, "googlemaps.status"
    for word in ("REQUEST_DENIED", "OVER_DAILY_LIMIT", "NOT_FOUND"):
        yield name, pretend(name, status=word), X, "googlemaps.status"


def _slack(error, status):
    data = {"ok": False, "error": error} if error else "no JSON"
    return SimpleNamespace(data=data, status_code=status, headers={})
