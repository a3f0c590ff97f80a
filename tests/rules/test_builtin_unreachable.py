"""Clients of databases, stores and brokers whose server is not there: the errors that they raise."""

import asyncio
import contextlib
import socket

import pytest
from support.errors.verdicts import judge, raised, wait_for_first_try

# Libraries whose modules warn when they are imported, or that leave a socket to the collector.
pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
]


def asyncpg(library, host, port):
    asyncio.run(library.connect(host=host, port=port, user="x"))


def aiomysql(library, host, port):
    asyncio.run(library.connect(host=host, port=port, user="x"))


def keywords(library, host, port):
    library.connect(host=host, port=port, user="x")


def libpq(library, host, port):
    library.connect(f"host={host} port={port} user=x")


def psycopg_async(library, host, port):
    asyncio.run(library.AsyncConnection.connect(f"host={host} port={port} user=x"))


def mysql_connector(library, host, port):
    library.connect(host=host, port=port, user="x", use_pure=True)


def oracledb(library, host, port):
    library.connect(user="x", password="y", dsn=f"{host}:{port}/x", tcp_connect_timeout=2)


def redis(library, host, port):
    library.Redis(host, port, retry=library.retry.Retry(library.backoff.NoBackoff(), 0)).ping()


def valkey(library, host, port):
    library.Valkey(host, port).ping()


def redis_cluster(library, host, port):
    library.RedisCluster(host, port)


def valkey_cluster(library, host, port):
    library.ValkeyCluster(host, port)


def pymongo(library, host, port):
    with library.MongoClient(host, port, serverSelectionTimeoutMS=50) as client:
        wait_for_first_try(client)
        client.admin.command("ping")


def elasticsearch(library, host, port):
    with library.Elasticsearch(f"http://{host}:{port}", max_retries=0) as client:
        client.info()


def opensearch(library, host, port):
    library.OpenSearch(hosts=[{"host": host, "port": port}], max_retries=0).info()


def cassandra(library, host, port):
    with contextlib.closing(library.Cluster([host], port=port, connect_timeout=2)) as cluster:
        cluster.close = cluster.shutdown
        cluster.connect()


def neo4j(library, host, port):
    with library.GraphDatabase.driver(f"bolt://{host}:{port}", auth=("a", "b")) as driver:
        driver.verify_connectivity()


def clickhouse_driver(library, host, port):
    library.Client(host, port=port).execute("SELECT 1")


def clickhouse_connect(library, host, port):
    library.get_client(host=host, port=port)


def pymemcache(library, host, port):
    library.Client((host, port)).get("a")


def pylibmc(library, host, port):
    library.Client([f"{host}:{port}"]).get("a")


def pika(library, host, port):
    library.BlockingConnection(library.ConnectionParameters(host, port, connection_attempts=1))


def aio_pika(library, host, port):
    asyncio.run(library.connect(f"amqp://guest:guest@{host}:{port}/"))


def peewee_postgres(library, host, port):
    library.PostgresqlDatabase("d", host=host, port=port, user="x").connect()


def peewee_mysql(library, host, port):
    library.MySQLDatabase("d", host=host, port=port, user="x").connect()


#: The module, a call to make, the rule for a closed port, and the rule for an unknown host.
CLIENTS = [
    ("pg8000.dbapi", keywords, "pg.message", "dns.lookup"),
    ("asyncpg", asyncpg, "os.network", "dns.lookup"),
    ("psycopg", libpq, "pg.message", "pg.message"),
    ("psycopg", psycopg_async, "pg.message", "pg.message"),
    ("psycopg2", libpq, "pg.message", "pg.message"),
    ("pymysql", keywords, "mysql.errno", "dns.lookup"),
    ("aiomysql", aiomysql, "mysql.errno", "dns.lookup"),
    ("asyncmy", aiomysql, "mysql.errno", "dns.lookup"),
    ("mysql.connector", mysql_connector, "mysql.errno", "dns.lookup"),
    ("oracledb", oracledb, "oracle.code", "dns.lookup"),
    ("redis", redis, "redis.network", "dns.lookup"),
    ("redis", redis_cluster, "redis.cluster", "dns.lookup"),
    ("valkey", valkey, "redis.network", "dns.lookup"),
    ("valkey", valkey_cluster, "redis.cluster", "dns.lookup"),
    ("pymongo", pymongo, "mongo.network", "dns.lookup"),
    ("elasticsearch", elasticsearch, "search.network", "dns.lookup"),
    ("opensearchpy", opensearch, "search.network", "dns.lookup"),
    ("cassandra.cluster", cassandra, "cassandra.host", "cassandra.refused"),
    ("neo4j", neo4j, "neo4j.network", "dns.lookup"),
    ("clickhouse_driver", clickhouse_driver, "clickhouse.code", "dns.lookup"),
    ("clickhouse_connect", clickhouse_connect, "http.network", "dns.lookup"),
    ("pymemcache.client.base", pymemcache, "os.network", "dns.lookup"),
    ("pylibmc", pylibmc, "memcached.closed", "memcached.usage"),
    ("pika", pika, "amqp.network", "dns.lookup"),
    ("aio_pika", aio_pika, "amqp.network", "dns.lookup"),
    ("peewee", peewee_postgres, "pg.message", "pg.message"),
    ("peewee", peewee_mysql, "mysql.errno", "dns.lookup"),
]
clients = pytest.mark.parametrize(
    ("module", "connect", "closed", "unknown"),
    CLIENTS,
    ids=[f"{c[0]}-{c[1].__name__}" for c in CLIENTS],
)


@clients
def test_a_closed_port(module, connect, closed, unknown, closed_port):
    library = pytest.importorskip(module)
    assert judge(raised(connect, library, "127.0.0.1", closed_port)) == ("transient", closed)


@clients
def test_an_unknown_host(module, connect, closed, unknown):
    library = pytest.importorskip(module)
    # RFC 2606: "invalid" is never a name; no resolver is asked where there is none.
    assert judge(raised(connect, library, "nowhere.invalid", 1234)) == ("terminal", unknown)


def test_sql_server_on_a_closed_port(closed_port):
    library = pytest.importorskip("pymssql")
    exc = raised(
        library.connect, "127.0.0.1", "x", "y", "z", port=str(closed_port), login_timeout=2
    )
    assert judge(exc) == ("transient", "mssql.number")


def test_kafka_on_a_closed_port(closed_port):
    library = pytest.importorskip("confluent_kafka.admin")
    client = library.AdminClient({"bootstrap.servers": f"127.0.0.1:{closed_port}", "log_level": 0})
    assert judge(raised(client.list_topics, timeout=0.2)) == ("transient", "kafka.code")


def test_a_full_queue_of_kafka(closed_port):
    library = pytest.importorskip("confluent_kafka")
    producer = library.Producer(
        {
            "bootstrap.servers": f"127.0.0.1:{closed_port}",
            "log_level": 0,
            "queue.buffering.max.messages": 1,
        }
    )
    producer.produce("topic", b"one")
    assert judge(raised(producer.produce, "topic", b"two")) == ("transient", "kafka.queue")
    producer.purge()


def test_aiokafka_on_a_closed_port(closed_port):
    library = pytest.importorskip("aiokafka")

    async def start():
        producer = library.AIOKafkaProducer(bootstrap_servers=f"127.0.0.1:{closed_port}")
        try:
            await producer.start()
        finally:
            await producer.stop()

    assert judge(raised(asyncio.run, start())) == ("transient", "kafka.network")


def test_stomp_on_a_closed_port(closed_port):
    library = pytest.importorskip("stomp")
    connection = library.Connection([("127.0.0.1", closed_port)], reconnect_attempts_max=1)
    exc = raised(connection.connect, "a", "b", wait=True)
    assert judge(exc) == ("transient", "stomp.network")


def test_a_redis_sentinel_on_a_closed_port(closed_port):
    library = pytest.importorskip("redis.sentinel")
    once = {"retry": None, "socket_timeout": 60}
    sentinel = library.Sentinel([("127.0.0.1", closed_port)], sentinel_kwargs=once)
    assert judge(raised(sentinel.discover_master, "main")) == ("transient", "redis.network")


def test_a_resolver_that_is_away_is_not_an_unknown_host(monkeypatch):
    library = pytest.importorskip("pymysql")

    def away(*args, **kwargs):
        raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")

    monkeypatch.setattr(socket, "getaddrinfo", away)
    exc = raised(keywords, library, "db.example", 3306)
    assert judge(exc) == ("transient", "mysql.errno")
