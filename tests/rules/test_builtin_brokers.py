"""Errors of Redis, AMQP, kombu and Celery, raised by real servers and clients where possible."""

import socket
import ssl

import pytest
from support.errors.verdicts import judge, raised

REDIS_WAIT = (
    "TimeoutError BusyLoadingError MaxConnectionsError ReadOnlyError TryAgainError MovedError "
    "AskError ClusterDownError MasterDownError"
)


def resolver_says(code):
    def fail(*args, **kwargs):
        raise socket.gaierror(code, "says the resolver")

    return fail


# -- Redis ------------------------------------------------------------------------------------------


def ping(port, **options):
    redis = pytest.importorskip("redis")
    host = options.pop("host", "127.0.0.1")
    once = redis.retry.Retry(redis.backoff.NoBackoff(), retries=0)
    with redis.Redis(host, port, socket_timeout=60, retry=once, **options) as client:
        client.ping()


def test_no_redis_server(closed_port):
    assert judge(raised(ping, closed_port)) == ("transient", "redis.network")


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (socket.EAI_NONAME, ("terminal", "dns.lookup")),
        (socket.EAI_AGAIN, ("transient", "redis.network")),
    ],
)
def test_a_redis_host_that_does_not_resolve(monkeypatch, code, expected):
    monkeypatch.setattr(socket, "getaddrinfo", resolver_says(code))
    assert judge(raised(ping, 6379, host="nowhere.invalid")) == expected


@pytest.fixture
def redis_client(redis_url):
    redis = pytest.importorskip("redis")
    with redis.Redis.from_url(redis_url) as client:
        yield client
        client.delete("dlq-classify", "dlq-classify-lock")


@pytest.mark.service
def test_redis_replies(redis_client):
    redis_client.set("dlq-classify", "text")
    wrong_type = raised(redis_client.lpush, "dlq-classify", 1)
    assert judge(wrong_type) == ("terminal", "redis.reply")
    assert judge(raised(redis_client.execute_command, "NONSENSE")) == ("terminal", "redis.reply")
    assert judge(raised(redis_client.evalsha, "0" * 40, 0)) == ("terminal", "redis.reply")
    assert judge(raised(redis_client.set, "dlq-classify", object())) == ("terminal", "redis.usage")


@pytest.mark.service
def test_a_redis_password_that_is_wrong(redis_url):
    redis = pytest.importorskip("redis")

    def login():
        with redis.Redis.from_url(redis_url, username="nobody", password="wrong") as client:
            client.ping()

    assert judge(raised(login)) == ("terminal", "redis.auth")


@pytest.mark.service
def test_a_redis_transaction_that_lost(redis_client):
    def transaction():
        with redis_client.pipeline() as pipe:
            pipe.watch("dlq-classify")
            redis_client.set("dlq-classify", "changed")
            pipe.multi()
            pipe.get("dlq-classify")
            pipe.execute()

    assert judge(raised(transaction)) == ("transient", "redis.busy")


@pytest.mark.service
def test_redis_locks(redis_client):
    first = redis_client.lock("dlq-classify-lock", timeout=60)
    assert first.acquire()
    second = redis_client.lock("dlq-classify-lock", timeout=60, blocking_timeout=0)
    assert judge(raised(second.__enter__)) == ("transient", "redis.lock")
    assert judge(raised(second.release)) == ("terminal", "redis.lock")
    redis_client.delete("dlq-classify-lock")
    assert judge(raised(first.release)) == ("terminal", "redis.lock")


def test_redis_errors_that_say_wait():
    errors = pytest.importorskip("redis.exceptions")
    for name in REDIS_WAIT.split():
        kind = getattr(errors, name)
        exc = kind("1 127.0.0.1:7000") if issubclass(kind, errors.AskError) else kind("x")
        assert judge(exc)[0] == "transient", name
    for name in ("NoPermissionError", "NoScriptError", "ExecAbortError", "InvalidResponse"):
        assert judge(getattr(errors, name)("x"))[0] == "terminal", name


# -- AMQP -------------------------------------------------------------------------------------------


@pytest.fixture
def channel(rabbitmq_url):
    from kombu import Connection

    with Connection(rabbitmq_url) as connection:
        connection.connect()
        yield connection.default_channel


@pytest.mark.service
def test_amqp_replies(channel):
    missing = raised(channel.queue_declare, "dlq-classify-no-such-queue", passive=True)
    assert judge(missing) == ("terminal", "amqp.irrecoverable")


@pytest.mark.service
def test_a_rabbitmq_password_that_is_wrong(rabbitmq_url):
    from kombu import Connection

    wrong = rabbitmq_url.replace("guest:guest", "guest:wrong")
    with Connection(wrong) as connection:
        exc = raised(connection.ensure_connection, max_retries=1, interval_start=0)
    assert judge(exc)[0] == "terminal"


def test_the_class_of_an_amqp_error_decides_not_its_number():
    import amqp

    for kind, expected in (
        (amqp.RecoverableConnectionError, "transient"),
        (amqp.ConnectionForced, "transient"),
        (amqp.ResourceLocked, "transient"),
        (amqp.InvalidCommand, "terminal"),
        (amqp.PreconditionFailed, "terminal"),
        (amqp.AccessRefused, "terminal"),
        (amqp.AMQPError, "terminal"),
    ):
        assert judge(kind("x", (50, 10), "method"))[0] == expected, kind
    assert judge(amqp.exceptions.MessageNacked())[0] == "transient"


# -- kombu and Celery -------------------------------------------------------------------------------


def connect(url, **options):
    from kombu import Connection

    with Connection(url, **options) as connection:
        connection.ensure_connection(max_retries=1, interval_start=0, interval_step=0)


@pytest.mark.parametrize("scheme", ["amqp", "redis"])
def test_no_broker(scheme, closed_port):
    exc = raised(connect, f"{scheme}://127.0.0.1:{closed_port}//")
    assert judge(exc) == ("transient", "kombu.operational")


@pytest.mark.service
def test_a_redis_broker_that_refuses_the_password(redis_url):
    exc = raised(connect, redis_url.replace("redis://", "redis://nobody:wrong@"))
    assert judge(exc) == ("terminal", "redis.auth")


def test_kombu_operational_error_over_a_certificate():
    from kombu.exceptions import OperationalError

    exc = OperationalError("handshake failed")
    exc.__cause__ = ssl.SSLCertVerificationError(1, "self-signed certificate")
    assert judge(exc) == ("terminal", "tls.certificate")


def test_messages_that_cannot_be_sent():
    from kombu.exceptions import ConnectionLimitExceeded
    from kombu.serialization import dumps, loads

    assert judge(raised(dumps, {"x": object()}, "json")) == ("terminal", "kombu.message")
    assert judge(raised(loads, b"{", "application/json", "utf-8")) == ("terminal", "kombu.message")
    refused = raised(loads, b"x", "application/x-python-serialize", "binary", accept=["json"])
    assert judge(refused) == ("terminal", "kombu.message")
    assert judge(ConnectionLimitExceeded(10)) == ("transient", "kombu.limit")


def test_http_errors_of_kombu():
    from kombu.exceptions import HttpError

    assert judge(HttpError(503, "busy"))[0] == "transient"
    assert judge(HttpError(404, "gone"))[0] == "terminal"


def test_errors_of_celery():
    from billiard.exceptions import TimeLimitExceeded, WorkerLostError
    from celery import exceptions

    for exc, expected in (
        (exceptions.TimeoutError(), "transient"),
        (exceptions.BackendGetMetaError("x"), "transient"),
        (exceptions.NotRegistered("shop.charge"), "terminal"),
        (exceptions.MaxRetriesExceededError("x"), "terminal"),
        (exceptions.ChordError("x"), "terminal"),
        (exceptions.ImproperlyConfigured("x"), "terminal"),
        (exceptions.SoftTimeLimitExceeded(), "terminal"),
        (TimeLimitExceeded(30), "terminal"),
        (WorkerLostError("x", 9), "terminal"),
        (exceptions.OperationalError("x"), "transient"),
    ):
        assert judge(exc)[0] == expected, exc
