"""Sends the tasks, evenly over the run, through every outage of the broker."""

from __future__ import annotations

import threading
import time
import uuid
from dataclasses import dataclass
from random import Random
from typing import Any

from chaos.kinds import Kind

#: Seconds before a message that the broker did not accept is sent again.
PAUSE_S = 0.2


@dataclass(frozen=True)
class Sent:
    task_id: str
    kind: Kind
    at: float
    #: Above one, the broker may have it more than once: an error does not say how far a message came.
    tries: int


class Producer(threading.Thread):
    """A client of the app. The broker has confirmed all messages in :attr:`sent`."""

    def __init__(self, app: Any, kinds: list[Kind], seconds: float, random: Random) -> None:
        super().__init__(name="producer", daemon=True)
        self.sent: list[Sent] = []
        self._app, self._kinds, self._seconds, self._random = app, kinds, seconds, random
        self._halt = threading.Event()

    def run(self) -> None:
        began = time.monotonic()
        for number, kind in enumerate(self._kinds):
            due = began + number * self._seconds / len(self._kinds)
            if self._halt.wait(max(0.0, due - time.monotonic())):
                return
            self._send(kind, number)

    def stop(self) -> None:
        """Send no more."""
        self._halt.set()
        self.join()

    def _send(self, kind: Kind, number: int) -> None:
        task_id = str(uuid.UUID(int=self._random.getrandbits(128), version=4))
        options = kind.send_options(self._random)
        errors: list[Exception] = []
        policy = {
            "max_retries": 3, "interval_start": PAUSE_S, "interval_step": 0, "interval_max": PAUSE_S,
            "errback": lambda error, _pause: errors.append(error),
        }  # fmt: skip
        while not self._halt.wait(PAUSE_S if errors else 0):
            try:
                self._app.send_task(
                    kind.name,
                    (number,),
                    task_id=task_id,
                    retry=True,
                    retry_policy=policy,
                    **options,
                )
            except (TypeError, ValueError):
                # Celery refuses the message, and would do so for ever.
                raise
            except Exception as error:
                errors.append(error)
            else:
                self.sent.append(Sent(task_id, kind, time.time(), 1 + len(errors)))
                return
