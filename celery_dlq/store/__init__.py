"""Keeps dead letters, and all that is known about them, in a SQL database.

Letters, filters and decisions enter; letters, pages and counts leave. A store
(:class:`~celery_dlq.store.sql.SQLStore`) is a set of roles, such as ``store.letters``; each method of a
role is one transaction unless it says otherwise, and may be repeated. All raise
:class:`~celery_dlq.errors.StoreUnavailable` when the database does not answer and
:class:`~celery_dlq.errors.SchemaError` when its schema does not fit. The store does not know Celery.

A program that does not open a store does not import SQLAlchemy: the rooms that are given a store import its
type, ``celery_dlq.store.Store``, only for the type checker.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from celery_dlq.store.sql import SQLStore

    Store = SQLStore
