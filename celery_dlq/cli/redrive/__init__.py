"""Commands that send letters back and manage operations: ``redrive`` and ``operations``. A selection and its
orders enter; an operation, its progress and its outcome leave. The sending itself is
``celery_dlq.redrive``."""
