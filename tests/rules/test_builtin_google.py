"""grpcio, google-api-core, google-cloud-storage, google-auth and googleapiclient, on local servers."""

import asyncio
from concurrent.futures import ThreadPoolExecutor

import pytest
from support.errors.verdicts import decided, verdict
from support.servers.local_servers import Answer, Answering

T, X = "transient", "terminal"


# -- gRPC ---------------------------------------------------------------------------------------

GRPC = {
    "UNAVAILABLE": T,
    "ABORTED": T,
    "DEADLINE_EXCEEDED": T,
    "RESOURCE_EXHAUSTED": T,
    "CANCELLED": X,
    "UNKNOWN": X,
    "INVALID_ARGUMENT": X,
    "NOT_FOUND": X,
    "ALREADY_EXISTS": X,
    "PERMISSION_DENIED": X,
    "FAILED_PRECONDITION": X,
    "OUT_OF_RANGE": X,
    "UNIMPLEMENTED": X,
    "INTERNAL": X,
    "DATA_LOSS": X,
    "UNAUTHENTICATED": X,
}
CODES = pytest.mark.parametrize(("code", "expected"), GRPC.items())


@pytest.fixture(scope="module")
def grpc_server():
    """The address of a server whose method ``/s/CODE`` ends with that code, ``/s/PATIENCE`` with a wait."""
    grpc = pytest.importorskip("grpc")

    class Failing(grpc.GenericRpcHandler):
        def service(self, details):
            code = details.method.rpartition("/")[2]
            if details.method.startswith("/many/"):
                return grpc.unary_stream_rpc_method_handler(lambda _, call: _fail_later(call, code))
            return grpc.unary_unary_rpc_method_handler(lambda _, call: _fail(call, code))

    server = grpc.server(ThreadPoolExecutor(2), handlers=[Failing()])
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield f"127.0.0.1:{port}"
    server.stop(None)


def _fail(call, code):
    import grpc

    if code == "PATIENCE":
        call.abort_with_status(_wait(6))
    if code == "PUSHBACK":
        call.set_trailing_metadata((("grpc-retry-pushback-ms", "2500"),))
        code = "UNAVAILABLE"
    call.abort(grpc.StatusCode[code], "m")


def _fail_later(call, code):
    yield b"first"
    _fail(call, code)


def _wait(seconds):
    from google.protobuf.any_pb2 import Any
    from google.protobuf.duration_pb2 import Duration
    from google.rpc.error_details_pb2 import RetryInfo
    from google.rpc.status_pb2 import Status
    from grpc_status import rpc_status

    detail = Any()
    detail.Pack(RetryInfo(retry_delay=Duration(seconds=seconds)))
    return rpc_status.to_status(Status(code=8, message="quota", details=[detail]))


def call(address, code, **options):
    import grpc

    with grpc.insecure_channel(address) as channel:
        channel.unary_unary(f"/s/{code}")(b"", **options)


def call_for_many(address, code):
    import grpc

    with grpc.insecure_channel(address) as channel:
        list(channel.unary_stream(f"/many/{code}")(b""))


def call_async(address, code):
    import grpc

    async def wait():
        async with grpc.aio.insecure_channel(address) as channel:
            await channel.unary_unary(f"/s/{code}")(b"")

    asyncio.run(wait())


def call_by_google(address, code):
    import grpc

    helpers = pytest.importorskip("google.api_core.grpc_helpers")
    with grpc.insecure_channel(address) as channel:
        helpers.wrap_errors(channel.unary_unary(f"/s/{code}"))(b"")


@CODES
@pytest.mark.parametrize("client", [call, call_for_many])
def test_grpc(grpc_server, client, code, expected):
    decision = decided(client, grpc_server, code)
    assert (decision.verdict.value, decision.rule) == (expected, "grpc.code")
    assert decision.evidence == f"code={code}"


@pytest.mark.parametrize(
    ("code", "expected"), [("UNAVAILABLE", T), ("ABORTED", T), ("INTERNAL", X)]
)
def test_grpc_aio(grpc_server, code, expected):
    assert verdict(call_async, grpc_server, code) == expected


@CODES
def test_grpc_by_google(grpc_server, code, expected):
    # google-api-core retries INTERNAL, and so do its clients.
    assert verdict(call_by_google, grpc_server, code) == (T if code == "INTERNAL" else expected)


@pytest.mark.parametrize("client", [call, call_for_many, call_async, call_by_google])
@pytest.mark.parametrize(("code", "seconds"), [("PATIENCE", 6.0), ("PUSHBACK", 2.5)])
def test_grpc_says_when_to_come_back(grpc_server, client, code, seconds):
    decision = decided(client, grpc_server, code)
    assert (decision.verdict.value, decision.retry_after) == (T, seconds)


def test_grpc_and_the_network(closed_port):
    grpc = pytest.importorskip("grpc")
    address = f"127.0.0.1:{closed_port}"
    assert verdict(call, address, "NOT_FOUND") == T
    with grpc.insecure_channel(address) as channel:
        ready = grpc.channel_ready_future(channel)
        assert decided(ready.result, timeout=0.05).rule == "grpc.timeout"
        ready.cancel()
        assert decided(ready.result).rule == "grpc.cancelled"


def test_grpc_and_an_untrusted_certificate(serve, self_signed):
    grpc = pytest.importorskip("grpc")
    self_signed.set_alpn_protocols(["h2"])
    address = serve(Answering, context=self_signed)

    def without_trust():
        with grpc.secure_channel(address, grpc.ssl_channel_credentials()) as channel:
            channel.unary_unary("/s/x")(b"")

    decision = decided(without_trust)
    assert (decision.verdict.value, decision.rule) == (X, "tls.certificate")


def test_a_retry_of_google_that_gave_up(grpc_server):
    retry = pytest.importorskip("google.api_core.retry")
    patient = retry.Retry(initial=0.001, maximum=0.001, timeout=0.01)
    decision = decided(patient(lambda: call_by_google(grpc_server, "UNAVAILABLE")))
    assert decision.verdict.value == T
    assert decision.path.startswith("google.api_core.exceptions.RetryError <- ")


# -- google over HTTP ---------------------------------------------------------------------------


def reasoned(status, reason, **headers):
    error = {"code": status, "message": "m", "errors": [{"reason": reason, "message": "m"}]}
    return Answer(status, {"error": error}, **headers)


def by_storage(url):
    storage = pytest.importorskip("google.cloud.storage")
    from google.auth.credentials import AnonymousCredentials

    client = storage.Client(
        project="p", credentials=AnonymousCredentials(), client_options={"api_endpoint": url}
    )
    client.bucket("bucket").get_blob("key", retry=None, timeout=60)


def by_apiclient(url):
    discovery = pytest.importorskip("googleapiclient.discovery")
    import httplib2

    method = {"id": "files.get", "path": "files", "httpMethod": "GET", "parameters": {}}
    document = {
        "name": "drive",
        "version": "v3",
        "rootUrl": f"{url}/",
        "baseUrl": f"{url}/",
        "servicePath": "",
        "batchPath": "batch",
        "resources": {"files": {"methods": {"get": method}}},
    }
    service = discovery.build_from_document(document, http=httplib2.Http(timeout=60))
    try:
        service.files().get().execute()
    finally:
        service.close()


GOOGLE = pytest.mark.parametrize("client", [by_storage, by_apiclient])


@GOOGLE
@pytest.mark.parametrize(
    ("status", "reason", "expected"),
    [
        (429, "rateLimitExceeded", T),
        (500, "internalError", T),
        (500, "other", T),
        (502, "other", T),
        (503, "backendError", T),
        (504, "other", T),
        (408, "other", T),
        (403, "rateLimitExceeded", T),
        (403, "userRateLimitExceeded", T),
        (403, "forbidden", X),
        (403, "quotaExceeded", X),
        (403, "dailyLimitExceeded", X),
        (400, "invalid", X),
        (409, "conflict", X),
        (410, "gone", X),
        (412, "conditionNotMet", X),
        (501, "notImplemented", X),
    ],
)
def test_google_over_http(served, client, status, reason, expected):
    assert verdict(client, served(reasoned(status, reason))) == expected


@GOOGLE
def test_google_says_when_to_come_back(served, client):
    assert decided(client, served(reasoned(429, "x", Retry_After="2"))).retry_after == 2.0


@GOOGLE
def test_google_and_the_network(client, closed_port):
    assert verdict(client, f"http://127.0.0.1:{closed_port}") == T


def by_auth(url):
    credentials = pytest.importorskip("google.oauth2.credentials")
    from google.auth.transport.requests import Request

    owner = credentials.Credentials(
        None, refresh_token="r", token_uri=url, client_id="i", client_secret="s"
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("google.auth._exponential_backoff.time.sleep", lambda seconds: None)
        owner.refresh(Request())


@pytest.mark.parametrize(
    ("status", "error", "expected"),
    [
        (500, "internal_failure", T),
        (503, "temporarily_unavailable", T),
        (400, "invalid_grant", X),
        (401, "invalid_client", X),
    ],
)
def test_google_auth(served, status, error, expected):
    assert verdict(by_auth, served(Answer(status, {"error": error}))) == expected


def test_google_auth_and_the_network(closed_port):
    refused = decided(by_auth, f"http://127.0.0.1:{closed_port}")
    assert (refused.verdict.value, refused.rule) == (T, "google.network")


def test_google_auth_without_credentials(monkeypatch):
    auth = pytest.importorskip("google.auth")
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", "/nowhere")
    assert decided(auth.default).rule == "google.auth"
