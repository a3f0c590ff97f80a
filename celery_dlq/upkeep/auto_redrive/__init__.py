"""Automatic redrive: which letters go back by themselves, when, and when that stops by itself.

The user's :class:`~celery_dlq.upkeep.auto_redrive.definition.AutoRedrive` values and the store's letters
enter; ordinary operations leave, which the upkeep of operations runs. One worker at a time holds the lease.
Nothing here publishes a message of a letter or writes an outcome.
"""
