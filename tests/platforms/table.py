"""The platforms that `make platforms` knows, by name, and what is run on each.

Debian's suites move on, so a platform asks for a version such as ``9`` and not for ``9.7.4``; the page has
the exact version of the run.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from platforms.debian import Suite, SuiteError
from platforms.pytest_run import run_tests
from platforms.pythons import TARGETS
from platforms.pythons import run_on as run_on_python
from platforms.results import Result
from platforms.servers import (
    InSuite,
    SuiteMariaDB,
    SuiteMySQL,
    SuitePostgres,
    SuiteRabbitMQ,
    SuiteRedis,
    SuiteValkey,
)

#: Runs everything that belongs to a platform.
Run = Callable[[], Iterator[Result]]


@dataclass(frozen=True)
class Chosen:
    """The tests that depend on a server."""

    what: str
    #: Arguments of pytest.
    choice: tuple[str, ...]
    #: The variable that names the server to them.
    variable: str
    environment: Mapping[str, str]


_WORKERS = (
    *(
        f"tests/integration/{name}.py"
        for name in (
            "capture/test_capture_in_workers", "capture/test_endless_messages", "capture/test_foreign",
            "capture/test_ingest", "capture/test_poison", "recorder/test_given_back",
            "recorder/test_recorder_in_workers", "recorder/test_redis_take", "redrive/test_redrive",
            "retry/test_parking_in_workers",
        )
    ),
    "tests/unit/cli/doctor/test_rabbitmq_queues.py",
)  # fmt: skip


def _with_workers(broker: str, places: str) -> Chosen:
    """
    :param places: chooses the tests on this broker by their names, as pytest's ``-k`` does.
    """
    return Chosen(
        what="real workers",
        choice=(f"tests/integration/test_matrix_on_{broker}.py", *_WORKERS, "-k", places),
        variable=f"CELERY_DLQ_TEST_{broker.upper()}",
        environment={},
    )


#: Tests that start servers of this machine's own.
_ON_OTHER_SERVERS = [
    f"--ignore=tests/store/database/{name}.py" for name in ("test_failover", "test_pgbouncer")
]


def _of_the_store(way: str) -> Chosen:
    return Chosen(
        what="the store",
        choice=("tests/store", "-m", "service", *_ON_OTHER_SERVERS),
        variable=f"CELERY_DLQ_TEST_{'POSTGRES' if way == 'postgresql' else 'MYSQL'}",
        environment={"CELERY_DLQ_TEST_ALL": "1", "CELERY_DLQ_TEST_DATABASES": way},
    )


ON_REDIS = _with_workers("redis", "not rabbit and not classic and not quorum")
ON_RABBITMQ = _with_workers("rabbitmq", "rabbit or classic or quorum")
ON_POSTGRESQL, ON_MYSQL = _of_the_store("postgresql"), _of_the_store("mysql")


@dataclass(frozen=True)
class Offer:
    """A server that a suite of Debian has."""

    #: The beginning of its version.
    version: str
    suite: str
    package: str
    make: Callable[[Path, Suite], InSuite]
    tests: Chosen


SERVERS: Mapping[str, Offer] = {
    "rabbitmq-4.0": Offer("4.0.", "trixie", "rabbitmq-server", SuiteRabbitMQ, ON_RABBITMQ),
    "rabbitmq-4-newest": Offer("4.", "sid", "rabbitmq-server", SuiteRabbitMQ, ON_RABBITMQ),
    "redis-8": Offer("8.", "sid", "redis-server", SuiteRedis, ON_REDIS),
    "valkey-8": Offer("8.", "trixie", "valkey-server", SuiteValkey, ON_REDIS),
    "valkey-9": Offer("9.", "sid", "valkey-server", SuiteValkey, ON_REDIS),
    "postgresql-17": Offer("17.", "trixie", "postgresql-17", SuitePostgres, ON_POSTGRESQL),
    "postgresql-18": Offer("18.", "sid", "postgresql-18", SuitePostgres, ON_POSTGRESQL),
    "mariadb-11.8": Offer("11.8.", "trixie", "mariadb-server", SuiteMariaDB, ON_MYSQL),
    "mysql-9": Offer("9.", "sid", "mysql-server", SuiteMySQL, ON_MYSQL),
}


def run_on(name: str, offer: Offer) -> Iterator[Result]:
    """Start the server, and run the tests that depend on it.

    :raises SuiteError: its suite has moved on to another version.
    """
    suite = Suite(offer.suite)
    suite.install(offer.package)
    with tempfile.TemporaryDirectory(prefix="platform-") as beside:
        # The servers' users enter it.
        Path(beside).chmod(0o755)
        with closing(offer.make(Path(beside, "server"), suite)) as server:
            server.start()
            version = server.version
            if not version.startswith(offer.version):
                raise SuiteError(
                    f"Debian's {offer.suite} has {version} of {offer.package}; change the name and the "
                    f"version of {name} in tests/platforms/table.py."
                )
            tests = offer.tests
            environment = {tests.variable: _address(server), **tests.environment}
            yield run_tests("server", name, version, tests.what, tests.choice, environment)


def _address(server: InSuite) -> str:
    """Its URL as the tests take it, without the name of a database."""
    url = server.url
    return url.rpartition("/")[0] if isinstance(server, SuitePostgres | SuiteMariaDB) else url


PLATFORMS: Mapping[str, Run] = {
    **{name: partial(run_on, name, offer) for name, offer in SERVERS.items()},
    **{target.name: partial(run_on_python, target) for target in TARGETS},
}
