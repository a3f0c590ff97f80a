"""Projects on a stand-in for Amazon SQS."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from project import Project
from queues import transport_options
from support.servers.own_sqs import KEY, SECRET, client_of

from celery_dlq.redrive.broker.queues import Depth, depth_of


@dataclass
class SQSProject(Project):
    """A project with a queue on SQS."""

    def transport(self, **options: object) -> None:
        """Give the workers, and the test itself, these options of the transport."""
        self.environ["PROJ_TRANSPORT"] = json.dumps(options)
        known = transport_options(self.broker, self.queue)
        self.app.conf.broker_transport_options = {**known, **options}

    @property
    def port(self) -> int:
        return int(self.broker.rpartition(":")[2])

    def make_queue(self, name: str = "", **attributes: str) -> str:
        """Make a queue, by default the project's own; returns its URL."""
        client = client_of(self.port)
        name = name or self.queue
        if name.endswith(".fifo"):
            attributes["FifoQueue"] = "true"
        url: str = client.create_queue(QueueName=name, Attributes=attributes)["QueueUrl"]
        client.close()
        return url

    def with_redrive_policy(self, most: int, **attributes: str) -> str:
        """Make the project's queue, and the one to which SQS moves messages after ``most`` deliveries;
        returns that one's name."""
        dead = self.queue.replace("dlq-test-", "dead-")
        self.make_queue(dead)
        arn = self.attributes(dead)["QueueArn"]
        policy = {"deadLetterTargetArn": arn, "maxReceiveCount": most}
        self.make_queue(RedrivePolicy=json.dumps(policy), **attributes)
        return dead

    def predefine(self, *names: str) -> None:
        """Use only these queues, with credentials of their own, as where no queue may be made or listed."""
        queues = {
            name: {
                "url": f"http://127.0.0.1:{self.port}/123456789012/{name}",
                "access_key_id": KEY, "secret_access_key": SECRET,
            }
            for name in names
        }  # fmt: skip
        self.transport(predefined_queues=queues)

    def attributes(self, name: str = "") -> dict[str, str]:
        client = client_of(self.port)
        url = client.get_queue_url(QueueName=name or self.queue)["QueueUrl"]
        found = client.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])["Attributes"]
        client.close()
        return dict(found)

    def depth(self, name: str = "") -> int:
        """Messages in the queue or with workers."""
        return sum(self.depths(name) or ())

    def depths(self, name: str = "") -> Depth | None:
        with self.app.connection_for_write() as connection:
            return depth_of(connection.default_channel, name or self.queue)

    def purge(self) -> None:
        """Take all messages off the project's queue; SQS' own command works once a minute."""
        client = client_of(self.port)
        url = client.get_queue_url(QueueName=self.queue)["QueueUrl"]
        while found := client.receive_message(QueueUrl=url, MaxNumberOfMessages=10).get("Messages"):
            for one in found:
                client.delete_message(QueueUrl=url, ReceiptHandle=one["ReceiptHandle"])
        client.close()

    def put(self, text: str, name: str = "", **options: Any) -> None:
        """Send a message as a program without kombu does."""
        client = client_of(self.port)
        url = client.get_queue_url(QueueName=name or self.queue)["QueueUrl"]
        client.send_message(QueueUrl=url, MessageBody=text, **options)
        client.close()

    def queues(self) -> set[str]:
        """The names of all queues."""
        client = client_of(self.port)
        urls = client.list_queues().get("QueueUrls", ())
        client.close()
        return {url.rpartition("/")[2] for url in urls}
