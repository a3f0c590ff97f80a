"""The app of ``proj``, with a worker that can go deaf."""

from celery.signals import worker_ready
from proj import FIXED, app

from celery_dlq import DeadLetterQueue

__all__ = ["app"]


@worker_ready.connect
def go_deaf(sender, **_):
    """Stop consuming once there is a file, although the queue stays selected: the consumer is lost, and the
    connection works."""

    def look():
        if FIXED.with_name("deaf").exists():
            entry.cancel()
            sender.task_consumer.cancel()

    entry = sender.timer.call_repeatedly(0.1, look)


@DeadLetterQueue.of(app).on_worker_stalled
def note(stall):
    with FIXED.with_name("stalls").open("a") as file:
        file.write(f"{stall.worker} {','.join(stall.queues)}\n")
