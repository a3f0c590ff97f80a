"""Message headers that this package writes, and those that it must not send along."""

#: Which redrive a message is, 1 for the first; kept by Celery through the retries of that redrive.
REDRIVE_HEADER = "x-dlq-redrive"

#: The failed attempts so far, as JSON text, carried from retry to retry.
ATTEMPTS_HEADER = "x-dlq-attempts"

#: Beginnings of headers that brokers and transports put on a delivered message. Sent along again,
#: RabbitMQ takes ``x-death`` for a cycle and drops the message, and stale counts mislead.
DELIVERY_HEADERS = ("x-death", "x-first-death", "x-last-death", "x-delivery-count", "redelivered")
