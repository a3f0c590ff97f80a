"""Brokers of several servers, of which one leads and fails: Redis with Sentinel, and a RabbitMQ cluster."""

from __future__ import annotations

import itertools
import shutil
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from chaos import redis_log
from chaos.clusters import Cluster, until
from chaos.redis_log import Undone
from chaos.servers import Epmd, RabbitMQ, Redis, Server, ServerError, program
from support.servers.ports import free_port
from support.workers.processes import with_parent

#: The name of the master that the sentinels watch over.
MASTER = "chaos"
#: How long a master may say nothing. On a busy machine, one may say nothing for a second.
DOWN_AFTER_MS = 3_000


class RedisMember(Redis):
    """A master, or a replica of ``master``."""

    #: Further options of all members.
    options: Sequence[str] = ()

    def __init__(self, directory: Path) -> None:
        self.master: RedisMember | None = None
        super().__init__(directory)

    def command(self) -> list[str]:
        follow = ["--replicaof", f"127.0.0.1 {self.master.port}"] if self.master else []
        return [
            *super().command(),
            # What is written survives the process; with "everysec" it might not be written yet.
            "--appendfsync", "no",
            "--repl-diskless-sync-delay", "0", *self.options, *follow,
        ]  # fmt: skip

    def ask(self, *words: object) -> Any:
        """Redis' answer to a command."""
        import redis

        with redis.Redis(port=self.port, socket_timeout=2, decode_responses=True) as client:
            return client.execute_command(*words)

    def replicas_in_step(self) -> int:
        """How many replicas follow it."""
        state: dict[str, Any] = self.ask("INFO", "replication")
        known = (state[f"slave{number}"] for number in range(state.get("connected_slaves", 0)))
        return sum(one["state"] == "online" for one in known)


class Sentinel(Server):
    """Watches over a master, and has a replica promoted when it is gone."""

    def __init__(self, directory: Path, master: RedisMember) -> None:
        self._master = master
        super().__init__(directory)

    def prepare(self) -> None:
        (self.directory / "sentinel.conf").write_text(
            f"port {self.port}\nbind 127.0.0.1\ndir {self.directory}\n"
            f"sentinel monitor {MASTER} 127.0.0.1 {self._master.port} 2\n"
            f"sentinel down-after-milliseconds {MASTER} {DOWN_AFTER_MS}\n"
            f"sentinel failover-timeout {MASTER} 2000\n"
            f"sentinel parallel-syncs {MASTER} 2\n"
        )

    def command(self) -> list[str]:
        return [program("redis-server"), str(self.directory / "sentinel.conf"), "--sentinel"]

    def state(self) -> dict[str, Any]:
        """What it knows about the master."""
        import redis

        with redis.Redis(port=self.port, socket_timeout=2, decode_responses=True) as client:
            state: dict[str, Any] = client.sentinel_master(MASTER)
            return state

    def check(self) -> None:
        self.state()


class RedisSentinel(Cluster):
    """A master, two replicas and three sentinels. The master fails, a replica is promoted, and the old master
    becomes its replica.

    :param options: of each of the three.
    """

    #: Seconds for which the replicas hear nothing before the master is killed, as if the network had kept it
    #: back. Otherwise the last writes of a master on the same machine nearly always arrive.
    behind_s = 0.1

    def __init__(self, directory: Path, *options: str) -> None:
        directory.mkdir(parents=True)
        directory.chmod(0o755)
        self.nodes = [RedisMember(directory / name) for name in ("a", "b", "c")]
        for node in self.nodes:
            node.options = options
        self.sentinels = [Sentinel(directory / f"sentinel{n}", self.nodes[0]) for n in range(3)]
        #: Copies of the files of each master that was killed, in order.
        self._fallen: list[Path] = []
        super().__init__(directory, (*self.nodes, *self.sentinels))

    @property
    def url(self) -> str:
        return ";".join(f"sentinel://127.0.0.1:{one.port}/0" for one in self.sentinels)

    @property
    def master(self) -> RedisMember:
        """The one that the sentinels have agreed on."""
        (port,) = {one.state()["port"] for one in self.sentinels}
        return next(node for node in self.nodes if node.port == port)

    def victim(self) -> Server:
        return self.master

    def kill(self) -> None:
        master = self.master
        replicas = [node for node in self.nodes if node is not master]
        for replica in replicas:
            replica.freeze()
        try:
            master.ask("CLIENT", "KILL", "TYPE", "replica")
            time.sleep(self.behind_s)
            super().kill()
        finally:
            for replica in replicas:
                replica.thaw()

    def start(self) -> None:
        """Start all of them at first; later, the master that has failed, as a replica of its successor."""
        if not any(node.is_up for node in self.nodes):
            self._start_all()
        else:
            until("another master", lambda: self.master.is_up)
            for node in self.nodes:
                if not node.is_up:
                    self._start_again(node)
        until("the replicas", lambda: self.master.replicas_in_step() == 2)
        until("the sentinels to know them", lambda: all(map(_knows_all, self.sentinels)))

    def _start_all(self) -> None:
        first = self.nodes[0]
        for node in self.nodes:
            node.master = first if node is not first else None
            node.start()
        for sentinel in self.sentinels:
            sentinel.start()

    def _start_again(self, node: RedisMember) -> None:
        copy = self.directory / "fallen" / str(len(self._fallen))
        shutil.copytree(node.directory, copy)
        self._fallen.append(copy)
        node.master = self.master
        node.start()

    def messages(self, queue: str) -> int:
        """How many messages are in ``queue`` or with a worker."""
        return self.master.messages(queue)

    def undone(self, queue: str) -> Undone:
        """What a master that was killed had done, and its successor knew nothing about."""
        directories = [*self._fallen, self.master.directory]
        found = Undone()
        for fallen, successor in itertools.pairwise(directories):
            found |= redis_log.undone(fallen, successor, queue)
        return found


def _knows_all(sentinel: Sentinel) -> bool:
    state = sentinel.state()
    return state["num-slaves"] >= 2 and state["num-other-sentinels"] == 2 and not state["is_sdown"]


class RabbitNode(RabbitMQ):
    """A node, which joins ``first`` when it is started for the first time."""

    def __init__(self, directory: Path, epmd: Epmd, first: RabbitNode | None) -> None:
        self._first, self._dist_port = first, free_port()
        self._shared_epmd = epmd
        super().__init__(directory)

    @property
    def node(self) -> str:
        return f"chaos{self.port}@localhost"

    def prepare(self) -> None:
        self._epmd = self._shared_epmd
        self.configure()
        if self._first is not None:
            with (self.directory / "rabbitmq.conf").open("a") as config:
                config.write(
                    "cluster_formation.peer_discovery_backend = classic_config\n"
                    f"cluster_formation.classic_config.nodes.1 = {self._first.node}\n"
                )

    def environment(self) -> dict[str, str]:
        # They share a cookie, which is in the home directory.
        home = str(self.directory.parent)
        return {**super().environment(), "HOME": home, "RABBITMQ_DIST_PORT": str(self._dist_port)}

    def ask(self, expression: str) -> str:
        """The value of an expression of Erlang. A command of ``rabbitmqctl`` would take a second of a
        processor's time each."""
        done = subprocess.run(
            with_parent([program("erl_call"), "-sname", self.node, "-e"], self._runs_as()),
            input=f"{expression}\n", env=self.environment(), cwd=self.directory,
            capture_output=True, text=True, timeout=60,
        )  # fmt: skip
        if done.returncode:
            raise ServerError(f"{expression} {done.stdout}{done.stderr}")
        return done.stdout

    def close(self) -> None:
        Server.close(self)  # the name server is the cluster's


class RabbitCluster(Cluster):
    """Three nodes with quorum queues. The node that leads the most queues fails."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True)
        directory.chmod(0o755)
        epmd = Epmd(directory / "epmd")
        epmd.start()
        first = RabbitNode(directory / "a", epmd, None)
        self.nodes = [first, *(RabbitNode(directory / name, epmd, first) for name in ("b", "c"))]
        if first._runs_as():
            shutil.chown(directory, first._runs_as())
        super().__init__(directory, (*self.nodes, epmd))

    @property
    def url(self) -> str:
        return ";".join(node.url for node in self.nodes)

    def victim(self) -> Server:
        """The leader of the workers' queue, or the first node before there is one."""
        leader = self.nodes[0].ask("ra_leaderboard:lookup_leader('%2F_chaos').")
        return next((node for node in self.nodes if node.node in leader), self.nodes[0])

    def start(self) -> None:
        """Start the nodes that are down."""
        down = [node for node in self.nodes if not node.is_up]
        if self.nodes[0] in down:
            self.nodes[0].start()
        for node in down:
            node.launch()
        for node in down:
            node.start()
        until("all nodes", self._is_whole)

    def _is_whole(self) -> bool:
        running = self.nodes[0].ask("rabbit_nodes:all_running().")
        return all(node.node in running for node in self.nodes)

    def messages(self, queue: str) -> int:
        """How many messages are in ``queue``; those of a worker are back there once it has stopped."""
        return self.nodes[0].messages(queue)

    def undone(self, queue: str) -> Undone:
        """Nothing: a quorum has each message."""
        return Undone()
