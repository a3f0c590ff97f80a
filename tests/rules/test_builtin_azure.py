"""Azure's clients for storage, Cosmos DB, identity and Service Bus, on local servers."""

import pytest
from support.errors.verdicts import decided
from support.servers.local_servers import Answer, Answering


def by_storage(url):
    blob = pytest.importorskip("azure.storage.blob")
    account = {"account_name": "a", "account_key": "eA=="}
    with blob.BlobServiceClient(url, credential=account, retry_total=0) as client:
        client.get_blob_client("container", "blob").download_blob()


def by_cosmos(url):
    cosmos = pytest.importorskip("azure.cosmos")
    with cosmos.CosmosClient(url, credential="eA==", retry_total=0) as client:
        client.get_database_client("d").read()


@pytest.mark.parametrize(
    ("status", "code", "expected"),
    [
        (503, "ServerBusy", "transient"),
        (500, "InternalError", "transient"),
        (500, "OperationTimedOut", "transient"),
        (429, "TooManyRequests", "transient"),
        (408, "RequestTimeout", "transient"),
        (400, "InvalidQueryParameterValue", "terminal"),
        (403, "AuthenticationFailed", "terminal"),
        (404, "BlobNotFound", "terminal"),
        (409, "LeaseIdMissing", "terminal"),
        (412, "ConditionNotMet", "terminal"),
        (416, "InvalidRange", "terminal"),
    ],
)
def test_storage(served, status, code, expected):
    body = f"<Error><Code>{code}</Code><Message>m</Message></Error>"
    url = served(Answer(status, body, "application/xml", x_ms_error_code=code))
    decision = decided(by_storage, url)
    assert decision.verdict.value == expected


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [({"x_ms_retry_after_ms": "1500"}, 1.5), ({"Retry_After": "5"}, 5.0), ({}, None)],
)
def test_when_to_come_back(served, headers, seconds):
    assert (
        decided(by_storage, served(Answer(503, "", "application/xml", **headers))).retry_after
        == seconds
    )


@pytest.mark.parametrize(
    ("status", "expected"),
    [(429, "transient"), (449, "transient"), (503, "transient"), (404, "terminal")],
)
def test_cosmos(served, status, expected, monkeypatch):
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    url = served(Answer(status, {"code": "c", "message": "m"}, x_ms_retry_after_ms="20"))
    assert decided(by_cosmos, url).verdict.value == expected


def test_the_network(serve, closed_port, self_signed):
    refused = decided(by_storage, f"http://127.0.0.1:{closed_port}")
    assert (refused.verdict.value, refused.rule) == ("transient", "azure.network")
    untrusted = decided(by_storage, f"https://{serve(Answering, context=self_signed)}")
    assert (untrusted.verdict.value, untrusted.rule) == ("terminal", "tls.certificate")


def test_no_credentials_to_log_in_with(monkeypatch):
    identity = pytest.importorskip("azure.identity")
    for name in ("AZURE_CLIENT_ID", "AZURE_TENANT_ID", "AZURE_CLIENT_SECRET", "AZURE_USERNAME"):
        monkeypatch.delenv(name, raising=False)
    assert decided(identity.EnvironmentCredential().get_token, "scope").rule == "azure.credentials"


def test_service_bus_on_an_unknown_host(monkeypatch):
    bus = pytest.importorskip("azure.servicebus")

    def send():
        text = "Endpoint=sb://nowhere.invalid;SharedAccessKeyName=n;SharedAccessKey=eA=="
        with (
            bus.ServiceBusClient.from_connection_string(text, retry_total=0) as client,
            client.get_queue_sender("q") as sender,
        ):
            sender.send_messages(bus.ServiceBusMessage("m"))

    decision = decided(send)
    assert (decision.verdict.value, decision.rule) in {
        ("terminal", "dns.lookup"),
        ("transient", "azure.network"),  # the resolver itself is away
    }
