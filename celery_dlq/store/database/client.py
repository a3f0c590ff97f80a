"""The process that uses a database: the name of its connections there, and how many it may have."""

from __future__ import annotations

import socket
from dataclasses import dataclass, field
from enum import Enum

#: PostgreSQL cuts names after this many bytes.
_NAME_BYTES = 63


class Role(str, Enum):
    """The purpose of a process that uses the store."""

    WORKER = "worker"
    #: A saver process, which saves letters for a worker in a storm of failures.
    SCRIBE = "scribe"
    CLI = "cli"
    FLOWER = "flower"
    EXPORTER = "exporter"
    #: Any other program, through the Python API.
    APP = "app"


#: Connections that a process may have at a time, on a database server. A worker's writer needs one, and all
#: its upkeep shares the other. Flower asks from four threads, and measures from a fifth one.
_CONNECTIONS = {
    Role.WORKER: 2,
    Role.SCRIBE: 1,
    Role.CLI: 2,
    Role.FLOWER: 5,
    Role.EXPORTER: 1,
    Role.APP: 5,
}

#: Connections that a process may have in addition while it runs a redrive: two claim, one marks, and one
#: prolongs the lease.
FOR_A_REDRIVE = 4


@dataclass(frozen=True)
class Client:
    """A process that uses the database, as the database server knows it."""

    role: Role = Role.APP
    #: The worker, or the machine.
    node: str = field(default_factory=socket.gethostname)
    #: Whether it makes the SQLite file of a store that does not exist. A process that shows a store must not:
    #: the new one is empty, and the letters are in the store of the workers.
    makes_file: bool = True

    @property
    def name(self) -> str:
        """The name of its connections on the server."""
        name = f"celery_dlq {self.role.value} {self.node}"
        return name.encode("ascii", "replace")[:_NAME_BYTES].decode()

    @property
    def most(self) -> int:
        """Connections that it may have at a time, apart from those :data:`FOR_A_REDRIVE`."""
        return _CONNECTIONS[self.role]
