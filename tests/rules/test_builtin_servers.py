"""Answers of Redis, RabbitMQ and of HTTP stores to real clients: refusals, and states that pass."""

import asyncio
import http.server
import json
import shutil
import socket
import subprocess
import threading
import time
from contextlib import contextmanager

import pytest
from support.errors.verdicts import judge, raised, wait_for_first_try
from support.servers.ports import free_port

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

# -- Elasticsearch, OpenSearch and ClickHouse, which are HTTP ---------------------------------------


@contextmanager
def answering(status):
    """The port of a server that gives each request the same answer."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def reply(self):
            self.rfile.read(int(self.headers.get("content-length") or 0))
            reason = {"type": "x", "reason": "y", "root_cause": [{"reason": "z"}]}
            body = json.dumps({"error": reason, "status": status}).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("X-Elastic-Product", "Elasticsearch")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_POST = do_PUT = do_HEAD = reply

        def log_message(self, *args):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            thread.join()


def elasticsearch(port):
    library = pytest.importorskip("elasticsearch")
    with library.Elasticsearch(f"http://127.0.0.1:{port}", max_retries=0) as client:
        client.index(index="a", document={})


def opensearch(port):
    library = pytest.importorskip("opensearchpy")
    host = {"host": "127.0.0.1", "port": port}
    library.OpenSearch(hosts=[host], max_retries=0).index(index="a", body={})


def clickhouse_connect(port):
    pytest.importorskip("clickhouse_connect").get_client(host="127.0.0.1", port=port)


@pytest.mark.parametrize("client", [elasticsearch, opensearch, clickhouse_connect])
@pytest.mark.parametrize(
    ("status", "verdict"),
    [
        *[(status, "transient") for status in (429, 502, 503, 504)],
        *[(status, "terminal") for status in (400, 401, 403, 404, 409, 413, 500)],
    ],
)
def test_answers_of_http_stores(client, status, verdict):
    with answering(status) as port:
        assert judge(raised(client, port)) == (verdict, "http.status")


def at_once(library):
    """The tries of a client by default, without the pauses of seconds between them."""
    return library.retry.Retry(library.backoff.NoBackoff(), 3)


@pytest.mark.parametrize("status", [200, 404])
def test_tls_to_a_server_that_speaks_none(status):
    mongo, redis = pytest.importorskip("pymongo"), pytest.importorskip("redis")
    search = pytest.importorskip("opensearchpy")
    with answering(status) as port:
        options = {"tls": True, "serverSelectionTimeoutMS": 100}
        with mongo.MongoClient("127.0.0.1", port, **options) as client:
            wait_for_first_try(client)
            assert judge(raised(client.admin.command, "ping")) == ("terminal", "tls.protocol")
        with redis.Redis("127.0.0.1", port, ssl=True, retry=at_once(redis)) as client:
            assert judge(raised(client.ping)) == ("terminal", "tls.protocol")
        host = {"host": "127.0.0.1", "port": port}
        client = search.OpenSearch(hosts=[host], use_ssl=True, max_retries=0)
        assert judge(raised(client.info)) == ("terminal", "tls.protocol")


# -- Redis: a server of its own, whose state may be spoiled -----------------------------------------


@pytest.fixture(scope="module")
def redis_port(tmp_path_factory):
    program = shutil.which("redis-server")
    if program is None:
        pytest.skip("redis-server is not installed")
    port = free_port()
    command = [program, "--port", str(port), "--bind", "127.0.0.1", "--save", ""]
    folder = tmp_path_factory.mktemp("redis")
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL) as process:
        try:
            _await_port(port)
            yield port
        finally:
            process.terminate()


def _await_port(port):
    deadline = time.monotonic() + 30
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            if time.monotonic() > deadline:
                raise
            continue
        return


@pytest.fixture(params=["redis", "valkey"])
def client(request, redis_port):
    library = pytest.importorskip(request.param)
    kind = {"redis": "Redis", "valkey": "Valkey"}[request.param]
    with getattr(library, kind)("127.0.0.1", redis_port, retry=at_once(library)) as client:
        client.flushall()
        client.set("text", "x")
        yield client


def test_redis_out_of_memory(client):
    client.config_set("maxmemory", "1")
    try:
        assert judge(raised(client.set, "a", "b"))[0] == "transient"
        assert judge(raised(client.pipeline().set("a", "b").execute))[0] == "transient"
    finally:
        client.config_set("maxmemory", "0")


def test_redis_without_its_replicas(client):
    client.config_set("min-replicas-to-write", "1")
    try:
        assert judge(raised(client.set, "a", "b")) == ("transient", "redis.reply")
    finally:
        client.config_set("min-replicas-to-write", "0")


def test_a_redis_replica(client, closed_port):
    client.replicaof("127.0.0.1", closed_port)
    try:
        assert judge(raised(client.set, "a", "b")) == ("transient", "redis.failover")
        client.config_set("replica-serve-stale-data", "no")
        assert judge(raised(client.get, "a"))[0] == "transient"
    finally:
        client.config_set("replica-serve-stale-data", "yes")
        client.replicaof("NO", "ONE")


def test_mistakes_in_redis(client):
    client.xgroup_create("stream", "group", mkstream=True)
    for call, arguments in (
        (client.lpush, ("text", 1)),
        (client.incr, ("text",)),
        (client.execute_command, ("NONSENSE",)),
        (client.evalsha, ("0" * 40, 0)),
        (client.eval, ("return redis.call('nonsense')", 0)),
        (client.xgroup_create, ("stream", "group")),
        (client.pipeline().lpush("text", 1).execute, ()),
        (client.execute_command, ("AUTH", "nobody", "wrong")),
    ):
        assert judge(raised(call, *arguments))[0] == "terminal", arguments


def test_a_redis_that_is_not_a_cluster(redis_port):
    redis = pytest.importorskip("redis")
    exc = raised(redis.RedisCluster, "127.0.0.1", redis_port)
    assert judge(exc) == ("terminal", "redis.cluster")


def test_coredis(redis_port):
    coredis = pytest.importorskip("coredis")

    async def run(command, **options):
        async with coredis.Redis("127.0.0.1", redis_port, **options) as client:
            await client.set("text", "x")
            await command(client)

    wrong = raised(asyncio.run, run(lambda client: client.lpush("text", ["a"])))
    assert judge(wrong) == ("terminal", "redis.reply")
    refused = raised(
        asyncio.run, run(lambda client: client.ping(), username="nobody", password="wrong")
    )
    assert judge(refused) == ("terminal", "redis.auth")


# -- RabbitMQ ---------------------------------------------------------------------------------------


@pytest.fixture
def pika_parameters(rabbitmq_url):
    pika = pytest.importorskip("pika")
    return pika.URLParameters(rabbitmq_url.removesuffix("//") + "/%2F")


@pytest.fixture
def pika_connection(pika_parameters):
    import pika

    connection = pika.BlockingConnection(pika_parameters)
    yield connection
    if connection.is_open:
        connection.close()


@pytest.mark.service
def test_refusals_of_rabbitmq_in_pika(pika_connection, pika_parameters):
    import pika

    passive = raised(pika_connection.channel().queue_declare, "dlq-no-such", passive=True)
    assert judge(passive) == ("terminal", "amqp.reply")
    own = "dlq-classify-own"
    pika_connection.channel().queue_declare(own, exclusive=True)
    other = raised(pika_connection.channel().queue_declare, own, exclusive=True, auto_delete=True)
    assert judge(other) == ("terminal", "amqp.reply")
    second = pika.BlockingConnection(pika_parameters)
    locked = raised(second.channel().queue_declare, own, exclusive=True)
    second.close()
    assert judge(locked) == ("transient", "amqp.reply")
    channel = pika_connection.channel()
    channel.confirm_delivery()
    lost = raised(channel.basic_publish, "", "dlq-no-such", b"", mandatory=True)
    assert judge(lost) == ("terminal", "amqp.error")


@pytest.mark.service
def test_logins_that_rabbitmq_refuses_in_pika(pika_parameters):
    import pika

    pika_parameters.credentials = pika.PlainCredentials("guest", "wrong")
    assert judge(raised(pika.BlockingConnection, pika_parameters)) == ("terminal", "amqp.auth")
    pika_parameters.credentials = pika.PlainCredentials("guest", "guest")
    pika_parameters.virtual_host = "dlq-no-such"
    assert judge(raised(pika.BlockingConnection, pika_parameters)) == ("terminal", "amqp.auth")


@pytest.mark.service
def test_closed_connections_and_channels_in_pika(pika_connection):
    channel = pika_connection.channel()
    channel.close()
    assert judge(raised(channel.queue_declare, "x")) == ("transient", "amqp.recoverable")
    pika_connection.close()
    assert judge(raised(pika_connection.channel)) == ("transient", "amqp.network")


@pytest.mark.service
def test_refusals_of_rabbitmq_in_aio_pika(rabbitmq_url):
    aio_pika = pytest.importorskip("aio_pika")
    url = rabbitmq_url.removesuffix("//")

    async def run(address, command):
        connection = await aio_pika.connect(address)
        try:
            await command(await connection.channel())
        finally:
            await connection.close()

    async def passive(channel):
        await channel.declare_queue("dlq-no-such", passive=True)

    async def empty(channel):
        queue = await channel.declare_queue(exclusive=True)
        await queue.get()

    async def closed(channel):
        await channel.close()
        await channel.declare_queue("x")

    for command, verdict in ((passive, "terminal"), (empty, "terminal"), (closed, "transient")):
        assert judge(raised(asyncio.run, run(f"{url}/", command)))[0] == verdict, command
    refused = raised(asyncio.run, run(f"{url.replace('guest:guest', 'guest:wrong')}/", passive))
    assert judge(refused) == ("terminal", "amqp.auth")
    nowhere = raised(asyncio.run, run(f"{url}/dlq-no-such", passive))
    assert judge(nowhere)[0] == "terminal"


def test_reply_codes_of_pika():
    exceptions = pytest.importorskip("pika.exceptions")
    for kind in (exceptions.ConnectionClosedByBroker, exceptions.ChannelClosedByBroker):
        assert judge(kind(320, "CONNECTION_FORCED")) == ("transient", "amqp.reply")
        for code in (311, 403, 404, 406, 501, 503, 504, 530, 540):
            assert judge(kind(code, "x")) == ("terminal", "amqp.reply"), code
    for name in ("StreamLostError", "AMQPHeartbeatTimeout", "ConnectionBlockedTimeout"):
        assert judge(getattr(exceptions, name)("x"))[0] == "transient", name
    for name in ("IncompatibleProtocolError", "DuplicateConsumerTag", "MethodNotImplemented"):
        assert judge(getattr(exceptions, name)("x"))[0] == "terminal", name
