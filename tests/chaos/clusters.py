"""Databases of several servers, which fail one at a time: PostgreSQL with a synchronous standby that is
promoted, and a Galera cluster of three nodes."""

from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from chaos.servers import START_PATIENCE_S, MariaDB, Postgres, Server, ServerError, program
from support.servers.ports import free_port


def until(what: str, ready: Callable[[], object]) -> None:
    """Wait until ``ready`` is true; it may raise errors until then."""
    deadline = time.monotonic() + START_PATIENCE_S
    while True:
        error: object = None
        try:
            if ready():
                return
        except Exception as raised:
            error = raised
        if time.monotonic() > deadline:
            raise ServerError(f"waited in vain for {what}: {error}")
        time.sleep(0.1)


class Cluster:
    """Servers that fail one at a time, and are repaired, as one :class:`~chaos.servers.Server`."""

    def __init__(self, directory: Path, members: Sequence[Server]) -> None:
        self.directory, self.members = directory, members
        self._victim = members[0]

    @property
    def name(self) -> str:
        return type(self).__name__

    def victim(self) -> Server:
        """The member that fails next."""
        raise NotImplementedError

    def kill(self) -> None:
        """Kill one member."""
        self._victim = self.victim()
        self._victim.kill()

    def stop(self) -> None:
        """Shut one member down in order."""
        self._victim = self.victim()
        self._victim.stop()

    def freeze(self) -> None:
        """Stop the processes of one member."""
        self._victim = self.victim()
        self._victim.freeze()

    def thaw(self) -> None:
        self._victim.thaw()

    def close(self) -> None:
        for member in self.members:
            member.close()


class PostgresMember(Postgres):
    """A primary, or a standby if it was copied from one."""

    def prepare(self) -> None:
        """A data directory is made, or copied, later."""

    def initialize(self) -> None:
        super().prepare()

    def copy(self, primary: PostgresMember) -> None:
        """Become a standby of ``primary``."""
        shutil.rmtree(self._data, ignore_errors=True)
        self._run_once(
            program("pg_basebackup"), "-D", self._data, "-R", "-X", "stream", "-c", "fast", "-d",
            f"host=127.0.0.1 port={primary.port} user=chaos application_name=standby",
        )  # fmt: skip

    def command(self) -> list[str]:
        return [*super().command(), "-c", "wal_level=replica", "-c", "hot_standby=on"]

    def ask(self, statement: str) -> object:
        """The first value of the answer."""
        import psycopg

        address = f"host=127.0.0.1 port={self.port} user=chaos dbname=postgres connect_timeout=2"
        with psycopg.connect(address, autocommit=True) as connection:
            row = connection.execute(statement).fetchone()  # type: ignore[arg-type]
            return None if row is None else row[0]

    def configure(self, name: str, value: str) -> None:
        """Change a setting of the running server."""
        import psycopg

        address = f"host=127.0.0.1 port={self.port} user=chaos dbname=postgres connect_timeout=2"
        with psycopg.connect(address, autocommit=True) as connection:
            connection.execute(f"ALTER SYSTEM SET {name} = '{value}'")
            connection.execute("SELECT pg_reload_conf()")

    def wait_for_standby(self, name: str | None) -> None:
        """Let commits wait for a standby of this name; None for no standby."""
        self.configure("synchronous_standby_names", name or "")


class ReplicatedPostgres(Cluster):
    """A primary, and a standby that has each commit before it is confirmed. If the primary fails, the standby
    is promoted; the old primary becomes the new one's standby."""

    #: Whether commits wait for the standby.
    is_synchronous = True

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True)
        directory.chmod(0o755)
        self.primary, self.standby = (PostgresMember(directory / name) for name in ("a", "b"))
        self.promotions = 0
        super().__init__(directory, (self.primary, self.standby))

    @property
    def url(self) -> str:
        servers = ",".join(f"127.0.0.1:{member.port}" for member in self.members)
        return f"postgresql+psycopg://chaos@{servers}/postgres"

    def victim(self) -> Server:
        return self.primary

    def start(self) -> None:
        """Start both at first; later, promote the standby if the primary was killed or stopped."""
        if not any(member.is_up for member in (self.primary, self.standby)):
            self.primary.initialize()
            self.primary.start()
        elif not self.primary.is_up:
            self.primary, self.standby = self.standby, self.primary
            self.primary.ask("SELECT pg_promote()")
            until("the promotion", lambda: not self.primary.ask("SELECT pg_is_in_recovery()"))
            # As failover managers do: nothing waits for a standby that does not exist.
            self.primary.wait_for_standby(None)
            self.promotions += 1
        self.standby.copy(self.primary)
        self.standby.start()
        self.primary.wait_for_standby("standby" if self.is_synchronous else None)
        kind = "sync" if self.is_synchronous else "async"
        is_in_step = f"SELECT count(*) = 1 FROM pg_stat_replication WHERE sync_state = '{kind}'"
        until("the standby to be in step", lambda: self.primary.ask(is_in_step))


class AsynchronousPostgres(ReplicatedPostgres):
    """A primary whose commits do not wait for its standby."""

    is_synchronous = False

    def part(self) -> None:
        """Let the standby receive nothing more."""
        self.standby.configure("primary_conninfo", "")
        until(
            "the standby to be alone",
            lambda: not self.standby.ask("SELECT count(*) FROM pg_stat_wal_receiver"),
        )


#: How long the living nodes of a Galera cluster may take to agree that they are a majority, in seconds.
QUORUM_PATIENCE_S = 30.0


class MariaDBMember(MariaDB):
    """A server with further options."""

    def __init__(self, directory: Path, *options: str) -> None:
        self._more = options
        super().__init__(directory)

    def command(self) -> list[str]:
        return [*super().command(), *self._more]

    def ask(self, statement: str) -> tuple[object, ...] | None:
        """The first row of the answer."""
        import pymysql

        connection = pymysql.connect(
            host="127.0.0.1", port=self.port, user="root", connect_timeout=2, read_timeout=5
        )
        with contextlib.closing(connection), connection.cursor() as cursor:
            cursor.execute(statement)
            row: tuple[object, ...] | None = cursor.fetchone()
            return row


class GaleraNode(MariaDBMember):
    def __init__(self, directory: Path) -> None:
        self.group_port, self.ist_port, self.sst_port = free_port(), free_port(), free_port()
        self.peers: Sequence[GaleraNode] = ()
        super().__init__(directory)

    def prepare(self) -> None:
        """All but the first node are copied by the cluster."""
        Path(self._data).mkdir()
        shutil.chown(self._data, self._runs_as() or "root")

    def initialize(self) -> None:
        super().prepare()

    def command(self) -> list[str]:
        others = ",".join(f"127.0.0.1:{peer.group_port}" for peer in self.peers)
        options = {
            "gmcast.listen_addr": f"tcp://127.0.0.1:{self.group_port}",
            "ist.recv_addr": f"127.0.0.1:{self.ist_port}",
            "gcache.size": "256M",
            # A test never restarts a whole cluster that was down, so no node needs to remember its cluster.
            "pc.recovery": "false",
        }
        return [
            *super().command(), "--binlog-format=ROW", "--innodb-autoinc-lock-mode=2",
            "--wsrep-on=ON", f"--wsrep-provider={_library()}",
            f"--wsrep-cluster-address=gcomm://{others if any(p.is_up for p in self.peers) else ''}",
            f"--wsrep-node-name={self.directory.name}", "--wsrep-node-address=127.0.0.1",
            "--wsrep-sst-method=rsync", f"--wsrep-sst-receive-address=127.0.0.1:{self.sst_port}",
            f"--wsrep-provider-options={';'.join(f'{key}={value}' for key, value in options.items())}",
        ]  # fmt: skip

    def check(self) -> None:
        if self.status("wsrep_ready") != "ON":
            raise ServerError("it has not joined its cluster")

    @contextlib.contextmanager
    def isolated(self) -> Iterator[None]:
        """Within this block, it does not hear the other nodes."""
        self.ask("SET GLOBAL wsrep_provider_options = 'gmcast.isolate=1'")
        try:
            until("it to notice", lambda: self.status("wsrep_cluster_status") != "Primary")
            yield
        finally:
            self.ask("SET GLOBAL wsrep_provider_options = 'gmcast.isolate=0'")

    def status(self, name: str) -> str:
        """A variable of the server's state."""
        row = self.ask(f"SHOW STATUS LIKE '{name}'")
        return str(row[1]) if row else ""


class Galera(Cluster):
    """Three nodes of MariaDB. Clients write to the first that serves, so this one fails, and in turn with it
    another one."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True)
        directory.chmod(0o755)
        self.nodes = [GaleraNode(directory / name) for name in ("a", "b", "c")]
        for node in self.nodes:
            node.peers = [other for other in self.nodes if other is not node]
        self._failures = 0
        super().__init__(directory, self.nodes)

    @property
    def url(self) -> str:
        return self.url_of("mysql")

    def url_of(self, database: str) -> str:
        """Where clients find ``database``."""
        servers = ",".join(f"127.0.0.1:{node.port}" for node in self.nodes)
        return f"mysql+pymysql://root@{servers}/{database}"

    def victim(self) -> Server:
        self._failures += 1
        return self.nodes[(self._failures + 1) % 2]

    def start(self) -> None:
        """Start the nodes that are down, one after another."""
        if not any(node.is_up for node in self.nodes):
            self.nodes[0].initialize()
        for node in self.nodes:
            if not node.is_up:
                self._restore_quorum()
                node.start()
        self._wait_for_all()

    def _restore_quorum(self) -> None:
        """Do what an administrator does if the living nodes have not heard each other for too long, as on a
        busy machine, and none accepts writes any more: declare the one with the latest commits to be the
        cluster."""
        living = [node for node in self.nodes if node.is_up]
        deadline = time.monotonic() + QUORUM_PATIENCE_S
        while living and time.monotonic() < deadline:
            if any(node.status("wsrep_cluster_status") == "Primary" for node in living):
                return
            time.sleep(0.5)
        if living:
            latest = max(living, key=lambda node: int(node.status("wsrep_last_committed")))
            latest.ask("SET GLOBAL wsrep_provider_options = 'pc.bootstrap=YES'")

    def thaw(self) -> None:
        super().thaw()
        # The others may have given it up.
        self._wait_for_all()

    def _wait_for_all(self) -> None:
        for node in self.nodes:
            until("all nodes", lambda node=node: node.status("wsrep_cluster_size") == "3")
            until("a node to serve", lambda node=node: node.status("wsrep_ready") == "ON")


def _library() -> str:
    path = Path("/usr/lib/galera/libgalera_smm.so")
    if not path.exists() or shutil.which("rsync") is None:
        raise ServerError("Galera is not installed; install galera-4 and rsync.")
    return str(path)
