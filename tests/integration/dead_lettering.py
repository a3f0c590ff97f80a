"""A project whose broker keeps dead letters of its own, and ways to make some."""

from __future__ import annotations

import contextlib
import json
from dataclasses import dataclass, field

from kombu import Exchange, Queue
from project import Project, wait_for


@dataclass
class DeadLetteringProject(Project):
    """A project whose queue has a dead-letter queue."""

    module: str = "proj_ingest"
    arguments: dict[str, object] = field(default_factory=dict)

    @property
    def dead(self) -> str:
        return f"{self.queue}-dead"

    @property
    def environment(self) -> dict[str, str]:
        return {
            **super().environment,
            "PROJ_QUEUE_ARGUMENTS": json.dumps(self.arguments),
        }

    def declare(self, **arguments: object) -> None:
        """Declare RabbitMQ's two queues: dead letters of the one go to the other."""
        self.arguments = {
            "x-dead-letter-exchange": "",
            "x-dead-letter-routing-key": self.dead,
            **arguments,
        }
        own = Queue(
            self.queue, Exchange(""), routing_key=self.queue, queue_arguments=self.arguments
        )
        self.app.amqp.queues.add(own)
        with self.channel() as channel:
            for name, given in ((self.queue, self.arguments), (self.dead, {})):
                channel.queue_declare(name, durable=True, auto_delete=False, arguments=given)

    @contextlib.contextmanager
    def channel(self):
        with (
            self.app.connection_for_write(self.broker) as connection,
            connection.channel() as channel,
        ):
            yield channel

    def depth(self, queue: str) -> int:
        with self.channel() as channel:
            if hasattr(channel, "_size"):
                return channel._size(queue)
            return channel.queue_declare(queue, passive=True).message_count

    def wait_for_depth(self, queue: str, depth: int) -> None:
        wait_for(f"{depth} messages in {queue}", lambda: self.depth(queue) == depth)

    def expire(self, count: int, name: str = "succeed") -> list[str]:
        """Send tasks that expire in the queue; returns their ids once the broker has moved them."""
        ids = [
            self.app.send_task(f"proj.{name}", (n,), expires=0.01).id for n in range(count)
        ]  # fmt: skip
        self.wait_for_depth(self.dead, count)
        return ids

    def bury(self, count: int, name: str = "succeed") -> list[str]:
        """Put the messages of tasks into the dead-letter queue, with the broker's own means."""
        if not self.broker.startswith("redis"):
            self.declare()
            return self.expire(count, name)
        sent_to = f"{self.queue}-aside"  # not taken by a worker that runs
        ids = [
            self.app.send_task(f"proj.{name}", (n,), queue=sent_to).id for n in range(count)
        ]  # fmt: skip
        with self.channel() as channel:
            while item := channel.client.rpop(sent_to):
                place = b'"routing_key": "%s"'
                was, now = (place % name.encode() for name in (sent_to, self.queue))
                assert was in item
                channel.client.lpush(self.dead, item.replace(was, now))
        return ids

    def close(self) -> None:
        with self.channel() as channel:
            channel.queue_delete(self.dead)
        super().close()
