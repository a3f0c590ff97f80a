"""The pairs of broker and store that the kill test runs on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from chaos.broker_clusters import RabbitCluster, RedisSentinel
from chaos.clusters import Cluster, Galera, ReplicatedPostgres
from chaos.servers import MariaDB, Postgres, RabbitMQ, Redis, Server

PAIRS: dict[str, tuple[Callable[[Path], Server | Cluster], Callable[[Path], Server | Cluster]]] = {
    "redis-postgresql": (Redis, Postgres),
    "rabbitmq-mariadb": (RabbitMQ, MariaDB),
    # With Redis, whose results need no database: Celery's own take only one server.
    "redis-replicated-postgresql": (Redis, ReplicatedPostgres),
    "redis-galera": (Redis, Galera),
    # The broker fails over. "Kill broker" kills its primary.
    "sentinel-postgresql": (RedisSentinel, Postgres),
    "rabbitmq-cluster-postgresql": (RabbitCluster, Postgres),
}

#: Those that the tests run on; `make chaos` runs on all of them.
TESTED = "rabbitmq-mariadb", "redis-postgresql"
#: Those that only nightly runs play, because they take longer.
NIGHTLY = "sentinel-postgresql", "rabbitmq-cluster-postgresql"
