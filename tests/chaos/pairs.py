"""The pairs of broker and store that the kill test runs on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from chaos.clusters import Cluster, Galera, ReplicatedPostgres
from chaos.servers import MariaDB, Postgres, RabbitMQ, Redis, Server

PAIRS: dict[str, tuple[Callable[[Path], Server], Callable[[Path], Server | Cluster]]] = {
    "redis-postgresql": (Redis, Postgres),
    "rabbitmq-mariadb": (RabbitMQ, MariaDB),
    # With Redis, whose results need no database: Celery's own take only one server.
    "redis-replicated-postgresql": (Redis, ReplicatedPostgres),
    "redis-galera": (Redis, Galera),
}

#: Those that the tests run on; `make chaos` runs on all of them.
TESTED = "rabbitmq-mariadb", "redis-postgresql"
