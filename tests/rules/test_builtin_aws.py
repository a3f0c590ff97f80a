"""boto3 against a local server that answers as AWS does, and against botocore's own stubs."""

from functools import cache

import pytest
from support.errors.verdicts import decided, verdict
from support.servers.local_servers import Answer, Answering

from celery_dlq.classify import decide


@pytest.fixture(autouse=True)
def account(monkeypatch):
    pytest.importorskip("boto3")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_DEFAULT_REGION"):
        monkeypatch.setenv(name, "us-east-1")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


@cache
def session():
    import boto3

    # Reading the models of the services takes longer than everything else here.
    return boto3.session.Session()


def client(service, url="http://127.0.0.1:1"):
    from botocore.config import Config

    config = Config(
        retries={"total_max_attempts": 1, "mode": "standard"},
        connect_timeout=60,
        read_timeout=60,
        s3={"addressing_style": "path"},
    )
    return session().client(service, endpoint_url=url, config=config)


def xml(status, code, **headers):
    body = f"<Error><Code>{code}</Code><Message>m</Message></Error>"
    return Answer(status, body, "application/xml", **headers)


def read_object(url):
    client("s3", url).get_object(Bucket="bucket", Key="key")


@pytest.mark.parametrize(
    ("status", "code", "expected"),
    [
        (503, "SlowDown", "transient"),
        (503, "ServiceUnavailable", "transient"),
        (500, "InternalError", "transient"),
        (400, "RequestTimeout", "transient"),
        (400, "BadDigest", "transient"),
        (409, "OperationAborted", "transient"),
        (409, "ConditionalRequestConflict", "transient"),
        (404, "NoSuchKey", "terminal"),
        (404, "NoSuchBucket", "terminal"),
        (403, "AccessDenied", "terminal"),
        (403, "InvalidAccessKeyId", "terminal"),
        (403, "SignatureDoesNotMatch", "terminal"),
        (403, "RequestTimeTooSkewed", "terminal"),
        (400, "ExpiredToken", "terminal"),
        (400, "InvalidRequest", "terminal"),
        (409, "BucketAlreadyExists", "terminal"),
        (412, "PreconditionFailed", "terminal"),
        (416, "InvalidRange", "terminal"),
        (501, "NotImplemented", "terminal"),
    ],
)
def test_s3(served, status, code, expected):
    decision = decided(read_object, served(xml(status, code)))
    assert (decision.verdict.value, decision.rule) == (expected, "aws.code")


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (404, "terminal"),
        (403, "terminal"),
        (400, "terminal"),
        (500, "transient"),
        (503, "transient"),
    ],
)
def test_s3_without_a_body(served, status, expected):
    def head(url):
        client("s3", url).head_object(Bucket="bucket", Key="key")

    assert verdict(head, served(Answer(status))) == expected


@pytest.mark.parametrize(
    ("status", "code", "expected"),
    [
        (400, "ProvisionedThroughputExceededException", "transient"),
        (400, "ThrottlingException", "transient"),
        (400, "RequestLimitExceeded", "transient"),
        (400, "TransactionConflictException", "transient"),
        (400, "TransactionInProgressException", "transient"),
        (500, "InternalServerError", "transient"),
        (400, "ConditionalCheckFailedException", "terminal"),
        (400, "ItemCollectionSizeLimitExceededException", "terminal"),
        (400, "ResourceNotFoundException", "terminal"),
        (400, "ValidationException", "terminal"),
        (400, "UnrecognizedClientException", "terminal"),
    ],
)
def test_dynamodb(served, status, code, expected):
    body = {"__type": f"com.amazonaws.dynamodb.v20120810#{code}", "message": "m"}
    url = served(Answer(status, body, "application/x-amz-json-1.0"))
    key = {"id": {"S": "1"}}
    assert verdict(lambda: client("dynamodb", url).get_item(TableName="t", Key=key)) == expected


@pytest.mark.parametrize(
    ("reasons", "expected"),
    [
        (("None", "TransactionConflict"), "transient"),
        (("ThrottlingError", "TransactionConflict"), "transient"),
        (("TransactionConflict", "ConditionalCheckFailed"), "terminal"),
        (("None", "ValidationError"), "terminal"),
    ],
)
def test_a_cancelled_transaction(served, reasons, expected):
    body = {
        "__type": "com.amazonaws.dynamodb.v20120810#TransactionCanceledException",
        "message": "m",
        "CancellationReasons": [{"Code": reason} for reason in reasons],
    }
    url = served(Answer(400, body, "application/x-amz-json-1.0"))
    item = {"Delete": {"TableName": "t", "Key": {"id": {"S": "1"}}}}
    decided = verdict(
        lambda: client("dynamodb", url).transact_write_items(TransactItems=[item, item])
    )
    assert decided == expected


@pytest.mark.parametrize(
    ("status", "code", "expected"),
    [
        (403, "RequestThrottled", "transient"),
        (400, "AWS.SimpleQueueService.NonExistentQueue", "terminal"),
    ],
)
def test_sqs(served, status, code, expected):
    url = served(
        Answer(status, {"__type": code, "message": "m"}, x_amzn_query_error=f"{code};Sender")
    )
    send = client("sqs", url).send_message
    assert verdict(send, QueueUrl=f"{url}/q", MessageBody="m") == expected


@pytest.mark.parametrize(
    ("status", "code", "expected"),
    [
        (429, "TooManyRequestsException", "transient"),
        (500, "ServiceException", "transient"),
        (502, "ResourceNotReadyException", "transient"),
        (502, "KMSAccessDeniedException", "terminal"),
        (502, "InvalidZipFileException", "terminal"),
        (404, "ResourceNotFoundException", "terminal"),
    ],
)
def test_lambda(served, status, code, expected):
    url = served(Answer(status, {"Message": "m"}, x_amzn_errortype=code, Retry_After="3"))
    decision = decided(client("lambda", url).invoke, FunctionName="f")
    assert decision.verdict.value == expected
    assert decision.retry_after == (3.0 if expected == "transient" else None)


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("Throttling", "transient"),
        ("IDPCommunicationError", "transient"),
        ("InternalFailure", "transient"),
        ("ServiceUnavailable", "transient"),
        ("ExpiredToken", "terminal"),
        ("AccessDenied", "terminal"),
        ("InvalidIdentityToken", "terminal"),
    ],
)
def test_a_stub_that_says_400_to_everything(code, expected):
    from botocore.stub import Stubber

    tokens = client("sts")
    with Stubber(tokens) as stub:
        stub.add_client_error("get_caller_identity", code)
        assert verdict(tokens.get_caller_identity) == expected


def test_the_network(closed_port):
    refused = decided(read_object, f"http://127.0.0.1:{closed_port}")
    assert (refused.verdict.value, refused.rule) == ("transient", "aws.network")
    unknown = decided(read_object, "http://nowhere.invalid")
    assert (unknown.verdict.value, unknown.rule) in {
        ("terminal", "dns.lookup"),
        ("transient", "aws.network"),  # the resolver itself is away
    }


def test_tls(serve, self_signed):
    decision = decided(read_object, f"https://{serve(Answering, context=self_signed)}")
    assert (decision.verdict.value, decision.rule) == ("terminal", "tls.certificate")


@pytest.mark.parametrize(
    ("code", "expected"), [("SlowDown", "transient"), ("AccessDenied", "terminal")]
)
def test_a_transfer_keeps_the_reason_in_its_context(served, tmp_path, code, expected):
    import boto3.exceptions

    path = tmp_path / "file"
    path.write_text("content")
    store = client("s3", served(xml(403, code)))
    with pytest.raises(boto3.exceptions.S3UploadFailedError) as caught:
        store.upload_file(str(path), "bucket", "key")
    assert decide(caught.value).verdict.value == expected


@pytest.mark.parametrize(
    ("status", "expected"), [(404, "transient"), (403, "terminal"), (503, "transient")]
)
def test_a_waiter(served, status, expected):
    wait = client("s3", served(Answer(status))).get_waiter("object_exists").wait
    options = {"Delay": 0, "MaxAttempts": 2}
    assert verdict(wait, Bucket="bucket", Key="key", WaiterConfig=options) == expected


def test_mistakes_on_this_side(monkeypatch):
    import boto3

    assert decided(client("s3").get_object, Bucket="bucket").rule == "aws.usage"
    assert decided(boto3.client, "nonsense").rule == "aws.usage"
    assert decided(boto3.resource, "nonsense").rule == "aws.usage"
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nowhere")
    stranger = boto3.session.Session().client("s3", endpoint_url="http://127.0.0.1:1")
    assert decided(stranger.list_buckets).rule == "aws.usage"
    monkeypatch.delenv("AWS_DEFAULT_REGION")
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nowhere")
    assert decided(boto3.session.Session().client, "sqs").rule == "aws.usage"
