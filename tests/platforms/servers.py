"""Servers of Debian's suites, each on a port of its own, which end with the run."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from pathlib import Path

from chaos.servers import ELSEWHERE, Epmd, MariaDB, Postgres, RabbitMQ, Redis, Server, ServerError
from platforms.debian import Suite
from support.workers.processes import family


class InSuite(Server):
    """A server whose programs are those of a suite."""

    # It may have to share the machine with the tests of other platforms.
    patience_s = 300.0

    def __init__(self, directory: Path, suite: Suite) -> None:
        self._suite = suite
        super().__init__(directory)

    @property
    def version(self) -> str:
        """Its exact version, as it gives it itself."""
        raise NotImplementedError

    def program(self, name: str) -> str:
        """Its path in the suite, or its name if it is in the suite's PATH."""
        root = self._suite.root
        found = sorted(root.glob(ELSEWHERE[name].lstrip("/"))) if name in ELSEWHERE else []
        return f"/{found[-1].relative_to(root)}" if found else name

    def stop(self) -> None:
        """Shut it down in order."""
        # The programs that set up its namespaces wait for it.
        _unshare, _shell, server, *_ = family(self._pid)
        os.kill(server, signal.SIGTERM)
        self._reap()

    def close(self) -> None:
        try:
            if self.is_up:
                self.stop()
        except ServerError:
            super().close()

    def _started(self, command: Sequence[str]) -> list[str]:
        return self._suite.inside(command, self.directory.parent, self.user or "root")

    def _give_away(self) -> None:
        os.chown(self.directory, *self._suite.ids_of(self.user or "root"))


class SuiteRedis(InSuite, Redis):
    """Redis; it keeps nothing on disk."""

    _program = "redis-server"

    @property
    def version(self) -> str:
        return str(self._told()["redis_version"])

    def command(self) -> list[str]:
        return [
            self.program(self._program), "--bind", "127.0.0.1", "--port", str(self.port), "--dir",
            str(self.directory), "--save", "",
        ]  # fmt: skip

    def _told(self) -> dict[str, object]:
        import redis

        with redis.Redis(port=self.port, socket_timeout=2) as client:
            return dict(client.info("server"))


class SuiteValkey(SuiteRedis):
    """Valkey, which tells its clients the version of Redis that it is compatible with."""

    _program = "valkey-server"

    @property
    def version(self) -> str:
        return str(self._told()["valkey_version"])


class SuiteEpmd(InSuite, Epmd):
    """Erlang's name server."""


class SuiteRabbitMQ(InSuite, RabbitMQ):
    """RabbitMQ. It refuses queues that are neither durable nor exclusive, as 4.3.0 did."""

    @property
    def version(self) -> str:
        from kombu import Connection

        with Connection(self.url, connect_timeout=2) as connection:
            return str(connection.connection.server_properties["version"])

    def prepare(self) -> None:
        super().prepare()
        with (self.directory / "rabbitmq.conf").open("a") as config:
            config.write("deprecated_features.permit.transient_nonexcl_queues = false\n")
            # Tests send messages of 50 MB. RabbitMQ 4 takes 16 MiB by default, and RabbitMQ 3 takes 128 MiB.
            config.write(f"max_message_size = {128 * 1024**2}\n")

    def name_server(self, directory: Path) -> Server:
        return SuiteEpmd(directory, self._suite)


class SuitePostgres(InSuite, Postgres):
    """PostgreSQL."""

    @property
    def version(self) -> str:
        import psycopg

        address = f"host=127.0.0.1 port={self.port} user=chaos dbname=postgres"
        with psycopg.connect(address) as connection:
            return str(connection.info.parameter_status("server_version")).split()[0]


class SuiteMariaDB(InSuite, MariaDB):
    """MariaDB."""

    @property
    def version(self) -> str:
        import pymysql

        with pymysql.connect(host="127.0.0.1", port=self.port, user="root") as connection:
            return str(connection.get_server_info()).split("-")[0]


class SuiteMySQL(SuiteMariaDB):
    """MySQL itself."""

    def prepare(self) -> None:
        self._run_once(
            self.program("mysqld"), "--no-defaults", "--initialize-insecure",
            f"--datadir={self._data}",
        )  # fmt: skip

    def command(self) -> list[str]:
        return [
            self.program("mysqld"), "--no-defaults", f"--datadir={self._data}", f"--port={self.port}",
            "--bind-address=127.0.0.1", f"--socket={self.directory}/socket", "--mysqlx=OFF",
            f"--pid-file={self.directory}/pid", "--character-set-server=utf8mb4", "--skip-log-bin",
            "--innodb-buffer-pool-size=64M",
        ]  # fmt: skip
