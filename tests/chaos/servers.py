"""Servers of a run's own, in a temporary directory and on free ports, so that they can be killed.

Each keeps what it has confirmed through a SIGKILL: Redis by its append-only file, RabbitMQ by durable
queues, the databases by their logs. If the run is root's, each runs as the user that its package created.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from chaos import redis_log
from support.servers.ports import free_port
from support.workers.processes import family, with_parent

START_PATIENCE_S = 240.0


class ServerError(Exception):
    """A server is not installed, may not be started, or does not come up."""


class Server:
    """One server process, which can be started, killed, stopped and frozen again and again."""

    #: The user that it runs as if the run is root's; None for the run's own.
    user: str | None = None
    #: Seconds for it to come up.
    patience_s = START_PATIENCE_S

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None
        directory.mkdir(parents=True)
        self._give_away()
        self.prepare()

    @property
    def name(self) -> str:
        return type(self).__name__

    @property
    def url(self) -> str:
        """Where clients find it."""
        raise NotImplementedError

    @property
    def is_up(self) -> bool:
        """Whether its process runs."""
        return self._process is not None and self._process.poll() is None

    def prepare(self) -> None:
        """Make the data directory."""

    def command(self) -> list[str]:
        """The server in the foreground."""
        raise NotImplementedError

    def program(self, name: str) -> str:
        """The path of one of its programs.

        :raises ServerError: it is not installed.
        """
        return program(name)

    def environment(self) -> dict[str, str]:
        return dict(os.environ)

    def check(self) -> None:
        """Raise unless it serves."""
        raise NotImplementedError

    def undone(self, queue: str) -> redis_log.Undone:
        """What it had done before it failed, and knew nothing about afterwards, according to its records."""
        return redis_log.Undone()

    def start(self) -> None:
        """Start it, and wait until it serves."""
        deadline = time.monotonic() + self.patience_s
        while True:
            # PostgreSQL refuses to start until all children of the killed one have ended.
            self.launch()
            try:
                return self.check()
            except Exception as error:
                if time.monotonic() > deadline:
                    tail = self.log.read_text(errors="replace")[-2000:]
                    raise ServerError(f"{self.name} does not serve: {error}\n{tail}") from error
            time.sleep(0.1)

    def kill(self) -> None:
        """Kill it, as a power cut does, except that the disk's cache is kept."""
        for pid in family(self._pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._reap()

    def stop(self) -> None:
        """Shut it down in order."""
        self._running.send_signal(signal.SIGTERM)
        self._reap()

    def freeze(self) -> None:
        """Stop its process, so that it neither answers nor refuses."""
        self._signal_family(signal.SIGSTOP)

    def thaw(self) -> None:
        self._signal_family(signal.SIGCONT)

    def close(self) -> None:
        if self.is_up:
            self.thaw()
            self.kill()

    @property
    def log(self) -> Path:
        return self.directory.with_suffix(".log")

    def _signal_family(self, number: int) -> None:
        for pid in family(self._pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    @property
    def _running(self) -> subprocess.Popen[bytes]:
        assert self._process is not None, f"{self.name} was not started"
        return self._process

    @property
    def _pid(self) -> int:
        return self._running.pid

    def _reap(self) -> None:
        try:
            self._running.wait(timeout=START_PATIENCE_S)
        except subprocess.TimeoutExpired:
            raise ServerError(f"{self.name} does not stop; see {self.log}") from None

    def launch(self) -> None:
        """Start it if it is down, without waiting for it."""
        if not self.is_up:
            self._process = self._launch()

    def _launch(self) -> subprocess.Popen[bytes]:
        with self.log.open("ab") as log:
            return subprocess.Popen(
                self._started(self.command()), env=self.environment(),
                cwd=self.directory, stdout=log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
                start_new_session=True,
            )  # fmt: skip

    def _started(self, command: Sequence[str]) -> list[str]:
        """``command`` as its user, killed when this run ends however it may."""
        return with_parent(command, self._runs_as())

    def _runs_as(self) -> str | None:
        return self.user if os.geteuid() == 0 else None

    def _give_away(self) -> None:
        user = self._runs_as()
        if user is None:
            return
        try:
            entry = pwd.getpwnam(user)
        except KeyError:
            raise ServerError(
                f"{self.name} needs the user {user!r}; install its package."
            ) from None
        os.chown(self.directory, entry.pw_uid, entry.pw_gid)

    def _run_once(self, *command: str) -> None:
        done = subprocess.run(
            self._started(command), env=self.environment(), cwd=self.directory,
            capture_output=True, text=True, timeout=START_PATIENCE_S,
        )  # fmt: skip
        if done.returncode:
            raise ServerError(f"{' '.join(command)}: {done.stdout[-1000:]}{done.stderr[-1000:]}")


class Redis(Server):
    """Each write is in its append-only file before it is answered."""

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}"

    def messages(self, queue: str) -> int:
        """How many messages are in ``queue`` or with a worker."""
        import redis

        with redis.Redis(port=self.port, socket_timeout=2) as client:
            return int(client.llen(queue)) + int(client.hlen("unacked"))

    def command(self) -> list[str]:
        return [
            self.program("redis-server"), "--bind", "127.0.0.1", "--port", str(self.port), "--dir",
            str(self.directory), "--save", "", "--appendonly", "yes", "--appendfsync", "always",
            # The account reads the file from its first command on.
            "--auto-aof-rewrite-percentage", "0",
        ]  # fmt: skip

    def check(self) -> None:
        import redis

        with redis.Redis(port=self.port, socket_timeout=2) as client:
            client.ping()


class Postgres(Server):
    user = "postgres"

    @property
    def url(self) -> str:
        return self.url_of("postgres")

    def url_of(self, database: str) -> str:
        """Where clients find ``database``."""
        return f"postgresql+psycopg://chaos@127.0.0.1:{self.port}/{database}"

    def prepare(self) -> None:
        self._run_once(
            self.program("initdb"), "-D", self._data, "-U", "chaos", "-A", "trust", "-N", "-E", "UTF8",
        )  # fmt: skip

    def command(self) -> list[str]:
        return [
            self.program("postgres"), "-D", self._data, "-p", str(self.port), "-k", str(self.directory),
            "-c", "listen_addresses=127.0.0.1",
        ]  # fmt: skip

    def check(self) -> None:
        import psycopg

        address = f"host=127.0.0.1 port={self.port} user=chaos dbname=postgres connect_timeout=2"
        with psycopg.connect(address) as connection:
            connection.execute("select 1")

    @property
    def _data(self) -> str:
        return str(self.directory / "data")


class MariaDB(Server):
    user = "mysql"

    @property
    def url(self) -> str:
        return f"mysql+pymysql://root@127.0.0.1:{self.port}/mysql"

    def prepare(self) -> None:
        self._run_once(
            self.program("mariadb-install-db"), "--no-defaults", f"--datadir={self._data}",
            "--auth-root-authentication-method=normal", "--skip-test-db",
        )  # fmt: skip

    def command(self) -> list[str]:
        return [
            self.program("mariadbd"), "--no-defaults", f"--datadir={self._data}", f"--port={self.port}",
            "--bind-address=127.0.0.1", f"--socket={self.directory}/socket",
            f"--pid-file={self.directory}/pid", "--character-set-server=utf8mb4",
            "--innodb-buffer-pool-size=64M",
        ]  # fmt: skip

    def check(self) -> None:
        import pymysql

        pymysql.connect(host="127.0.0.1", port=self.port, user="root", connect_timeout=2).close()

    @property
    def _data(self) -> str:
        return str(self.directory / "data")


class Epmd(Server):
    """Erlang's name server: RabbitMQ would leave one behind if it had to start it itself."""

    user = "rabbitmq"

    def command(self) -> list[str]:
        return [self.program("epmd"), "-address", "127.0.0.1", "-port", str(self.port)]

    def check(self) -> None:
        socket.create_connection(("127.0.0.1", self.port), timeout=2).close()


class RabbitMQ(Server):
    user = "rabbitmq"

    @property
    def url(self) -> str:
        return f"amqp://guest:guest@127.0.0.1:{self.port}//"

    def prepare(self) -> None:
        self._epmd = self.name_server(self.directory.with_name("epmd"))
        self._epmd.start()
        self.configure()

    def configure(self) -> None:
        """Write its configuration."""
        config = self.directory / "rabbitmq.conf"
        config.write_text(f"listeners.tcp.local = 127.0.0.1:{self.port}\nlog.console = true\n")
        config.chmod(0o644)

    def name_server(self, directory: Path) -> Server:
        return Epmd(directory)

    def messages(self, queue: str) -> int:
        """How many messages are in ``queue``; those of a worker are back there once it has stopped."""
        from kombu import Connection

        with Connection(self.url, connect_timeout=2) as connection:
            return int(connection.default_channel.queue_declare(queue, passive=True).message_count)

    def command(self) -> list[str]:
        return [self.program("rabbitmq-server")]

    def environment(self) -> dict[str, str]:
        here = str(self.directory)
        return {
            **os.environ,
            "HOME": here,
            "ERL_EPMD_PORT": str(self._epmd.port),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "RABBITMQ_CONF_ENV_FILE": os.devnull,
            "RABBITMQ_NODENAME": f"chaos{self.port}@localhost",
            "RABBITMQ_DIST_PORT": str(free_port()),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1} +S 1:1",
            "RABBITMQ_CONFIG_FILE": f"{here}/rabbitmq.conf",
            "RABBITMQ_ENABLED_PLUGINS_FILE": f"{here}/enabled_plugins",
            "RABBITMQ_MNESIA_BASE": f"{here}/mnesia",
            "RABBITMQ_PID_FILE": f"{here}/pid",
            "RABBITMQ_LOG_BASE": f"{here}/log",
        }

    def check(self) -> None:
        from kombu import Connection

        with Connection(self.url, connect_timeout=2) as connection:
            connection.ensure_connection(max_retries=1, interval_start=0)

    def close(self) -> None:
        super().close()
        self._epmd.close()


#: The files of a server that is installed, but not in PATH (as in Debian), or has a wrapper
#: there that works with one directory only.
ELSEWHERE = {
    "postgres": "/usr/lib/postgresql/*/bin/postgres",
    "initdb": "/usr/lib/postgresql/*/bin/initdb",
    "mariadbd": "/usr/sbin/mariadbd",
    "rabbitmq-server": "/usr/lib/rabbitmq/bin/rabbitmq-server",
}


def program(name: str) -> str:
    """The path of an installed program.

    :raises ServerError: it is not installed.
    """
    pattern = ELSEWHERE.get(name, "")
    found = sorted(map(str, Path("/").glob(pattern.lstrip("/")))) if pattern else []
    path = found[-1] if found else shutil.which(name)
    if path is None:
        raise ServerError(f"{name} is not installed; the kill test starts servers of its own.")
    return path
