"""Where dead letters are kept. ``celery_dlq.store.sql`` has the implementation, and is imported by
those who open a store only: it brings SQLAlchemy along."""

from celery_dlq.store.base import Claim, Filter, Group, Page, Saved, Stats, Store

__all__ = ["Claim", "Filter", "Group", "Page", "Saved", "Stats", "Store"]
